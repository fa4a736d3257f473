# Servers of one image, for OpenTofu and Terraform. The provider asks Nova as it does in any cloud;
# VirtMan has their root disks.

terraform {
  required_providers {
    openstack = {
      source = "terraform-provider-openstack/openstack"
    }
  }
}

variable "image" {
  type = string
}

variable "flavor" {
  type = string
}

variable "servers" {
  type    = number
  default = 3
}

resource "openstack_compute_instance_v2" "web" {
  count       = var.servers
  name        = "web-${count.index + 1}"
  image_name  = var.image
  flavor_name = var.flavor
  # Or the networks that they are in, as ever.
  network_mode = "none"
}

output "servers" {
  value = openstack_compute_instance_v2.web[*].id
}
