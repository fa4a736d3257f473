/*
 * Lets User Mode Linux run on processors whose registers are larger than it knows.
 *
 * UML keeps its processes' extended registers (XSAVE) in buffers of a fixed size. A host
 * kernel wants all of them to be written at once, and with AMX they are 11 KB: it refuses
 * UML's shorter writes with EFAULT, and the first process of a node takes the node down.
 * Preloaded, this completes each write with what the process has: UML masks AMX from
 * nobody, but nothing in a node uses it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

typedef long (*ptrace_call)(int, pid_t, void *, void *);

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_call next;
	va_list arguments;
	va_start(arguments, request);
	pid_t pid = va_arg(arguments, pid_t);
	void *address = va_arg(arguments, void *);
	struct iovec *data = va_arg(arguments, void *);
	va_end(arguments);

	if (!next)
		next = (ptrace_call)dlsym(RTLD_NEXT, "ptrace");
	if (request != PTRACE_SETREGSET || address != (void *)NT_X86_XSTATE)
		return next(request, pid, address, data);

	/* not on the stack: that of a UML kernel is small; a UML kernel has one processor */
	static char whole[64 * 1024];
	struct iovec all = {whole, sizeof(whole)};
	if (next(PTRACE_GETREGSET, pid, address, &all) == -1 || all.iov_len <= data->iov_len)
		return next(request, pid, address, data);
	memcpy(whole, data->iov_base, data->iov_len);
	return next(request, pid, address, &all);
}
