package config

import "time"

// Pool holds the settings of the section pool.
type Pool struct {
	// Isolation is IsolationProcess or IsolationInline.
	Isolation string
	// ModelsDir holds model files; "": where models.FromEnvironment looks.
	ModelsDir string
	ONNX      ONNX
	Tesseract Tesseract
	Python    Python
	Decode    Decode
}

// The values of Pool.Isolation.
const (
	IsolationProcess = "process"
	IsolationInline  = "inline"
)

// ONNX holds the settings of pool.onnx.
type ONNX struct {
	Library  string
	Slots    int
	MaxBatch int
	Timeout  time.Duration
}

// Tesseract holds the settings of pool.tesseract.
type Tesseract struct {
	Slots    int
	PSM      int
	Language string
	Timeout  time.Duration
}

// SlotsFor is the number of Tesseract children on a machine with that many CPUs.
func (t Tesseract) SlotsFor(cpus int) int {
	if t.Slots > 0 {
		return t.Slots
	}
	return max(1, cpus)
}

// Python holds the settings of pool.python. A zero that has a meaning of its own
// is explained in the table of settings.
type Python struct {
	// Interpreter is a program; "": REWARDLOOP_PYTHON, else python3 on PATH.
	Interpreter  string
	Processes    int
	Concurrency  int
	MemoryBytes  int64
	FileBytes    int64
	Files        int
	StartTimeout time.Duration
	CallTimeout  time.Duration
	StallTimeout time.Duration
}

// Decode holds the settings of pool.decode.
type Decode struct {
	MaxPixels   int
	MaxFrames   int
	BudgetBytes int64
}

// defaultPool has the default of every setting.
func defaultPool() Pool {
	return Pool{
		Isolation: IsolationProcess,
		ONNX:      ONNX{MaxBatch: 32, Timeout: time.Minute},
		Tesseract: Tesseract{PSM: 11, Language: "eng", Timeout: 30 * time.Second},
		Python: Python{
			Concurrency: 256, FileBytes: 1 << 30, Files: 1024, StartTimeout: 2 * time.Minute, StallTimeout: 10 * time.Second,
		},
		Decode: Decode{MaxPixels: 4096 * 4096, MaxFrames: 1024, BudgetBytes: 512 << 20},
	}
}

// section is the table of the settings of pool.
func (p *Pool) section() section {
	return section{
		name: "pool", doc: "What scores samples.",
		settings: []setting{
			choice("isolation", &p.Isolation, []string{IsolationProcess, IsolationInline},
				"process: engines that can crash run in child processes. inline: in this one, for debugging."),
			text("models_dir", &p.ModelsDir, "Folder of model files. Empty: REWARDLOOP_MODELS, else the clone's .cache/models, else rewardloop/models in the user's cache folder."),
		},
		sections: []section{{
			name: "onnx", doc: "ONNX Runtime, which runs models such as PP-OCR.",
			settings: []setting{
				text("library", &p.ONNX.Library, "libonnxruntime 1.29 or newer. Empty: looked for; rewardloop doctor says where."),
				integer("slots", &p.ONNX.Slots, 0, 1024, "Runs at the same time on the CPU, each in a process. 0: one for each CPU. A card has one."),
				integer("max_batch", &p.ONNX.MaxBatch, 1, 4096, "Items in one run, where measuring shows that it pays."),
				period("timeout", &p.ONNX.Timeout, time.Millisecond, "One run; a process that takes longer is killed and replaced."),
			},
		}, {
			name: "tesseract", doc: "The text reader of builtin://ocr.",
			settings: []setting{
				integer("slots", &p.Tesseract.Slots, 0, 1024, "Tesseract processes. 0: one for each CPU."),
				integer("psm", &p.Tesseract.PSM, 0, 13, "Page segmentation mode: 11 sparse text, 6 one block, 7 one line."),
				text("language", &p.Tesseract.Language, "Language data, such as eng or eng+chi_sim."),
				period("timeout", &p.Tesseract.Timeout, time.Millisecond, "One picture; a process that takes longer is killed and replaced."),
			},
		}, {
			name: "python", doc: "Processes that run Python reward functions (Linux only).",
			settings: []setting{
				text("interpreter", &p.Python.Interpreter, "Python 3.10 or newer, such as .venv/bin/python. Empty: REWARDLOOP_PYTHON, else python3 on PATH."),
				integer("processes", &p.Python.Processes, 0, 1024, "Processes of a function: one is its own, the others are started on demand and shared by all functions. 0: one for each CPU, and one for a function that is async or has a concurrency."),
				integer("concurrency", &p.Python.Concurrency, 1, 65536, "Calls of an async function that one process runs at a time, unless its entry says concurrency."),
				size("memory", &p.Python.MemoryBytes, 0, "Resident memory of a process and all that it starts, unless its entry says memory. 0: a quarter of the machine's or container's."),
				size("file_bytes", &p.Python.FileBytes, 1<<10, "The largest file that a function may write."),
				integer("files", &p.Python.Files, 16, 1<<20, "Files and sockets that a process may have open."),
				period("start_timeout", &p.Python.StartTimeout, time.Millisecond, "One start, with what the module imports and what its class loads."),
				period("call_timeout", &p.Python.CallTimeout, 0, "One call; a process that takes longer is killed and replaced. 0: the timeout of its reward."),
				period("stall_timeout", &p.Python.StallTimeout, time.Millisecond, "How long a call of an async function may keep the others waiting before its process is killed."),
			},
		}, {
			name: "decode", doc: "Pictures and videos on their way to pixels.",
			settings: []setting{
				integer("max_pixels", &p.Decode.MaxPixels, 1, 1<<30, "Width × height of the largest picture or frame."),
				integer("max_frames", &p.Decode.MaxFrames, 1, 1<<20, "Frames of the longest video."),
				size("budget_bytes", &p.Decode.BudgetBytes, 1<<20, "What decodings that run and pixels that are read may take together."),
			},
		}},
	}
}
