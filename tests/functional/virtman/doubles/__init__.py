"""Simulated kernels: what the root verbs change and the look-ups in /sys see, in memory.

Each module of ``virtman.privileged`` has its double here, in a file of its name: a class whose
public methods are the module's verbs. ``modules`` has that of ``kernel``, and ``sysfs`` that of
``virtman.sysfs``. ``Kernel.doubles`` says which stands for which. All doubles of a kernel look at
the same ``Devices``.

One ``Network`` joins the kernels of several nodes: a login on one is a session at the
target of another. A ``Process`` is what runs on a kernel: verbs know it by the thread that
calls, and threads belong to the process of the thread that started them. A process can be
told to let its n-th verb fail, or to die there.

The kernel is as strict as the real one where it matters: a device is busy while something
lies on it, a table must fit the devices that it names, and what is done to an absent
device is an error. What a real kernel would not survive well is kept in ``harm``.
"""
