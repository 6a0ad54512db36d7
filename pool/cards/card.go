package cards

import (
	"fmt"
	"strconv"
)

// Card is one CUDA device: a card, or an instance of one that is divided by MIG.
type Card struct {
	// Index is nvidia-smi's number of the card, of an instance its card's; -1: not known.
	Index int `json:"index"`
	// UUID is GPU-… or MIG-…; "": not known.
	UUID string `json:"uuid"`
	// Name is the product's, of an instance with its profile.
	Name string `json:"name"`
	// Parent is the UUID of the card that an instance is a part of; "" for a whole card.
	Parent string `json:"parent,omitempty"`
	// MemoryBytes is all of its memory; 0: not known.
	MemoryBytes int64 `json:"memory_bytes"`
	// FreeBytes is what nobody has taken; -1: not known.
	FreeBytes int64 `json:"free_bytes"`
	// ECCErrors counts uncorrected errors of its memory since the driver was loaded; -1: the
	// card does not count them.
	ECCErrors int64 `json:"ecc_errors"`
	// Sick says why nothing is to run on it; "": it is healthy.
	Sick string `json:"sick,omitempty"`
	// Processes are those that compute on it, as far as this process may see them. Of an
	// instance they are those of its whole card.
	Processes []Process `json:"processes,omitempty"`
}

// Process is one that computes on a card.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// Bytes is the card's memory that it has; -1: not known.
	Bytes int64 `json:"bytes"`
}

// Visible is the value of CUDA_VISIBLE_DEVICES with which a process sees this card alone.
func (c Card) Visible() string {
	if c.UUID != "" || c.Index < 0 {
		return c.UUID
	}
	return strconv.Itoa(c.Index)
}

// Found is what cards this process may use.
type Found struct {
	// Cards are in CUDA's order: the first is cuda:0.
	Cards []Card `json:"cards"`
	// Source is where they were found: nvidia-smi, NVML, /proc/driver/nvidia or
	// CUDA_VISIBLE_DEVICES; "": there are none.
	Source string `json:"source,omitempty"`
	// Visible is the value of CUDA_VISIBLE_DEVICES; nil: it is not set.
	Visible *string `json:"cuda_visible_devices,omitempty"`
	// Notes say what people should know, such as that an entry of CUDA_VISIBLE_DEVICES is no
	// card, or why there are none.
	Notes []string `json:"notes,omitempty"`
}

// Device is the name of the card at a place in Found.Cards: cuda:<n>.
func Device(n int) string { return fmt.Sprintf("cuda:%d", n) }

// GiB is a number of bytes for people.
func GiB(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }
