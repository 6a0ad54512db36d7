package subprocess

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confine confines this process and becomes the command of args, which are those behind "child confine". It returns
// where it cannot.
func confine(args []string) int {
	var c Confinement
	err := json.Unmarshal([]byte(args[0]), &c)
	if err == nil {
		// Landlock and seccomp are of a thread, and this one calls exec.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err = c.apply()
	}
	if err == nil {
		err = fmt.Errorf("%s: %w", args[1], syscall.Exec(args[1], args[1:], nil))
	}
	fmt.Fprintf(os.Stderr, "confine: %v\n", err)
	return 126
}

func (c *Confinement) apply() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_NO_NEW_PRIVS: %w", err)
	}
	if err := c.landlock(); err != nil {
		return err
	}
	if err := noSockets(); err != nil {
		return err
	}
	for _, l := range []struct {
		resource int
		most     uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, 0}, // pipes are no files
		{unix.RLIMIT_CPU, c.CPUSeconds},
		{unix.RLIMIT_NOFILE, c.Files},
		{unix.RLIMIT_AS, c.Memory}, // last: this process has reserved more
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return fmt.Errorf("setrlimit %d to %d: %w", l.resource, l.most, err)
		}
	}
	return nil
}

// landlockFS are the accesses to files that each version of Landlock knows beyond those of the one before.
//
//nolint:gochecknoglobals // a table of the kernel's
var landlockFS = []uint64{
	1: 1<<13 - 1, // EXECUTE to MAKE_SYM
	2: unix.LANDLOCK_ACCESS_FS_REFER,
	3: unix.LANDLOCK_ACCESS_FS_TRUNCATE,
	5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
}

// landlock takes all files but those below the folders, as far as this kernel can.
func (c *Confinement) landlock() error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return nil // an older kernel, or one that was started without it
	}
	rules := unix.LandlockRulesetAttr{}
	for v, access := range landlockFS {
		if uintptr(v) <= version {
			rules.Handled_access_fs |= access
		}
	}
	if version >= 4 {
		rules.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= 6 {
		rules.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), unsafe.Sizeof(rules), 0)
	if errno != 0 {
		return fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, path := range c.Folders {
		if err := allow(int(fd), path); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return nil
}

// allow lets what lies below a path be read and executed.
func allow(rules int, path string) error {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(at)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE, Parent_fd: int32(at)}
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		rule.Allowed_access |= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock_add_rule %s: %w", path, errno)
	}
	return nil
}

// auditArch is the machine as seccomp names it, by GOARCH.
//
//nolint:gochecknoglobals // a table of the kernel's
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// denied are the system calls of the network and of other processes.
//
//nolint:gochecknoglobals // a table of the kernel's
var denied = []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_IO_URING_SETUP,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_PIDFD_OPEN,
	unix.SYS_PIDFD_GETFD, unix.SYS_BPF, unix.SYS_KEYCTL, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT,
}

// noSockets has seccomp answer the denied system calls with EPERM, and end a process that calls by the numbers of
// another machine.
func noSockets() error {
	arch, ok := auditArch[runtime.GOARCH]
	if !ok {
		return nil
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atMost = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
		x32    = 0x40000000 // the bit of amd64's second table of numbers
	)
	// struct seccomp_data begins with the number and the machine.
	program := []unix.SockFilter{
		{Code: load, K: 4},
		{Code: equal, K: arch, Jt: 1},
		{Code: answer, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: 0},
		{Code: atMost, K: x32, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_KILL_PROCESS},
	}
	for _, call := range denied {
		program = append(program,
			unix.SockFilter{Code: equal, K: call, Jf: 1},
			unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	}
	program = append(program, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
	runtime.KeepAlive(program)
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: this kernel has none
		return fmt.Errorf("prctl PR_SET_SECCOMP: %w", err)
	}
	return nil
}
