"""Nova 34.0.0."""

from typing import Any

from nova import objects

NAME = "34.0.0"

METHODS = {
    "Backend.__init__": "b43b70b554902ec7",
    "Backend.backend": "60508b92cd87014f",
    "Backend.by_libvirt_path": "140308ec329035ac",
    "Backend.by_name": "f5dc49558391e555",
    "Image.__init__": "4850dafbc62d3595",
    "Image._can_fallocate": "fe43c9e5c6aac4f5",
    "Image.cache": "12cc61a2d3f654d7",
    "Image.create_image": "012f307dd68cb71f",
    "Image.exists": "7d57b972810a546f",
    "Image.get_disk_size": "a5253d3e528a4971",
    "Image.get_model": "8d825b9cee098e58",
    "Image.libvirt_info": "b658124c04ad5148",
    "Image.resize_image": "10dc9d78190e9cc4",
    "Image.snapshot_extract": "349c6e08d82a882e",
    "Image.verify_base_size": "59e0aa283ba1916e",
    "LibvirtDriver.__init__": "a3bc2562d2f77686",
    "LibvirtDriver._cleanup": "6d76f7b435af4c89",
    "LibvirtDriver._connect_volume": "568a1f1c4bc42366",
    "LibvirtDriver._create_and_inject_local_root": "96c55ed0eae810cc",
    "LibvirtDriver._create_image": "9704a71b016d3ba4",
    "LibvirtDriver._create_snapshot_metadata": "4f15fc90e3aaf845",
    "LibvirtDriver._destroy": "d91c670db8063e37",
    "LibvirtDriver._disconnect_volume": "0ae19546bf688d2b",
    "LibvirtDriver._get_guest_storage_config": "1ba7468e48dac5fc",
    "LibvirtDriver._get_instance_disk_info": "4aad60779c93afd9",
    "LibvirtDriver._get_instance_disk_info_from_config": "e3bf2c7ee019abf1",
    "LibvirtDriver._get_local_gb_info": "c640797fa30bcbd4",
    "LibvirtDriver._is_path_shared_with": "04ad436a55894539",
    "LibvirtDriver._is_shared_block_storage": "24f2ccae86bd9278",
    "LibvirtDriver._live_migration": "abf59deeea5e0384",
    "LibvirtDriver._live_migration_copy_disk_paths": "fff60228c2e9f77a",
    "LibvirtDriver._live_migration_monitor": "270668f378fc6033",
    "LibvirtDriver._live_migration_operation": "c9f30d8de35cfc80",
    "LibvirtDriver._set_quiesced": "fbb87f03c9d04717",
    "LibvirtDriver._try_fetch_image_cache": "262458dc6a1bdfc7",
    "LibvirtDriver._undefine_domain": "d978bd71fbf5831a",
    "LibvirtDriver.attach_volume": "14ee44646b969ed7",
    "LibvirtDriver.cache_image": "3f3eda71799e10ed",
    "LibvirtDriver.check_can_live_migrate_source": "8b2f6c210aab70b1",
    "LibvirtDriver.cleanup": "abac2765e045333a",
    "LibvirtDriver.delete_instance_files": "00ae746321e131dd",
    "LibvirtDriver.destroy": "df63c3f545bcb865",
    "LibvirtDriver.extend_volume": "525caeed8a617ca2",
    "LibvirtDriver.finish_migration": "ddea1a93d18462a1",
    "LibvirtDriver.finish_revert_migration": "2808a4dc4bdc51d3",
    "LibvirtDriver.init_host": "abf827f0c5aad723",
    "LibvirtDriver.instance_on_disk": "9837236bd4cd0b71",
    "LibvirtDriver.live_migration": "4512f75d99dc3f4e",
    "LibvirtDriver.live_migration_abort": "52f8e13b6b7388cc",
    "LibvirtDriver.manage_image_cache": "d2e1617730a114d9",
    "LibvirtDriver.migrate_disk_and_power_off": "ad718f84c7ebb376",
    "LibvirtDriver.post_live_migration": "07b90a83db5e232f",
    "LibvirtDriver.post_live_migration_at_destination": "368110f4e58eb6b2",
    "LibvirtDriver.pre_live_migration": "7d338db69f2f6323",
    "LibvirtDriver.rescue": "dd157d5db014de53",
    "LibvirtDriver.rollback_live_migration_at_destination": "74c773ed73e124e1",
    "LibvirtDriver.rollback_live_migration_at_source": "a08cd4260cf01dfb",
    "LibvirtDriver.snapshot": "79c77f690ccb59e6",
    "LibvirtDriver.swap_volume": "9c92026a76581c95",
    "LibvirtDriver.update_provider_tree": "1fecc349ab53333b",
}


def reverts_with(context: Any, instance: Any) -> dict[str, Any]:
    """Return the shares of a server: its node has them mounted while it is on its way."""
    found = objects.ShareMappingList.get_by_instance_uuid(context, instance.uuid)
    return {"share_info": found}
