package main

import (
	"os"
	"path/filepath"
)

// adoptPython sets REWARDLOOP_PYTHON, where nobody has, to the Python of the environment that this program was installed into: a wheel
// puts the program beside that Python, which need not be the first one on PATH. Reward functions run in it, and ONNX Runtime's package
// is looked for in it.
func adoptPython() {
	const name = "REWARDLOOP_PYTHON"
	if _, named := os.LookupEnv(name); named {
		return
	}
	exe, err := os.Executable()
	if err != nil {
		return
	}
	if target, err := filepath.EvalSymlinks(exe); err == nil {
		exe = target
	}
	if python := environmentPython(filepath.Dir(exe)); python != "" {
		_ = os.Setenv(name, python) // the name is a good one
	}
}

// environmentPython is the Python of the environment that has its programs in a folder; "": that is no environment's folder.
func environmentPython(programs string) string {
	python := filepath.Join(programs, "python3")
	if info, err := os.Stat(python); err != nil || info.Mode()&0o111 == 0 || info.IsDir() {
		return ""
	}
	for _, mark := range []string{"pyvenv.cfg", "conda-meta"} { // of venv, virtualenv and uv; of conda
		if _, err := os.Stat(filepath.Join(programs, "..", mark)); err == nil {
			return python
		}
	}
	return ""
}
