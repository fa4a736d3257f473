"""Files to copy to openstack_dashboard/local/enabled."""
