// Package ffmpeg runs ffmpeg on the file of a sample, in a confined child process because the file is
// untrusted.
//
// [Runner.Play] copies the file into sealed memory, which the process gets as descriptor 3. Play starts this
// binary as a child process, which confines itself (subprocess.ConfineCommand) and becomes ffmpeg: without
// environment and network, without files except those of ffmpeg and its libraries, and with limited memory and
// time. The output of ffmpeg is read while it arrives, by a reader that has the limit of its length. The
// process group is killed when the reader has enough, when the context ends, and, by the kernel, when this
// process ends in any way. Play returns when the process has ended.
//
// Package media defines the arguments of ffmpeg. The main function of a program with this package must call
// subprocess.Main, which runs the child processes.
package ffmpeg
