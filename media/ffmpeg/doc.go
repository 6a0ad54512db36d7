// Package ffmpeg runs ffmpeg on the file of a sample in a confined child process, because the file is untrusted.
//
// The life of a run: [Runner.Play] copies the file into sealed memory, which the process finds as descriptor 3, and
// starts this binary as a child that confines itself (subprocess.ConfineCommand) and becomes ffmpeg: no environment,
// no network, no file but ffmpeg's own and its libraries, bounded memory and time. What ffmpeg writes is read as it
// comes, by whoever knows how much there may be. The process group is killed when the reader has enough, when the
// context ends, and by the kernel when this process ends, however that ends. Play returns when the process is gone.
//
// Which arguments ffmpeg gets is package media's. Kinds of child processes are known to a program whose main calls
// subprocess.Main.
package ffmpeg
