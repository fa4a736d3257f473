"""iSCSI as a transport: open-iscsi reads from parents, LIO serves children.

With ``virtman.model.address`` and the root verbs of both, all that knows iSCSI.
"""
