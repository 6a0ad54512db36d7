package ort

import (
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
)

// EveryoneHas reports whether every process of a runner has a model.
func EveryoneHas(r pool.Runner, m infer.Model) bool { return r.(*runner).everyoneHas(m) }

// BindDecoder says what is wrong with a decoder of such ports.
func BindDecoder(inputs, outputs []infer.Port) error {
	_, err := bindDecoder(infer.Model{Name: "decoder"}, inputs, outputs)
	return err
}

// SetLenience sets how long Load waits for processes that are busy.
func SetLenience(r pool.Runner, d time.Duration) { r.(*runner).lenience = d }
