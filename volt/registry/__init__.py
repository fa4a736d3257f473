"""What Volt does with its nouns: images, placements, hosts, peers."""
