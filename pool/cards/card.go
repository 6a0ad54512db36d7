package cards

import (
	"fmt"
	"strconv"
)

// Card is one CUDA device: a whole card, or an instance of a card that is divided by MIG.
type Card struct {
	// Index is nvidia-smi's number of the card; an instance has the number of its card. -1 means
	// unknown.
	Index int `json:"index"`
	// UUID is GPU-… or MIG-…. It is empty if unknown.
	UUID string `json:"uuid"`
	// Name is the name of the product; the name of an instance includes its profile.
	Name string `json:"name"`
	// Parent is the UUID of the card to which an instance belongs. It is empty for a whole card.
	Parent string `json:"parent,omitempty"`
	// MemoryBytes is the total memory of the card. 0 means unknown.
	MemoryBytes int64 `json:"memory_bytes"`
	// FreeBytes is the free memory of the card. -1 means unknown.
	FreeBytes int64 `json:"free_bytes"`
	// ECCErrors counts uncorrected memory errors since the driver was loaded. -1 means that the
	// card does not count them.
	ECCErrors int64 `json:"ecc_errors"`
	// Sick is the reason why the card must not be used. It is empty if the card is healthy.
	Sick string `json:"sick,omitempty"`
	// Processes are the processes that compute on the card, as far as they are visible to this
	// process. An instance has the processes of its whole card.
	Processes []Process `json:"processes,omitempty"`
}

// Process is a process that computes on a card.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// Bytes is the amount of the card's memory that the process uses. -1 means unknown.
	Bytes int64 `json:"bytes"`
}

// Visible returns the value of CUDA_VISIBLE_DEVICES with which a process sees only this card.
func (c Card) Visible() string {
	if c.UUID != "" || c.Index < 0 {
		return c.UUID
	}
	return strconv.Itoa(c.Index)
}

// Found contains the cards that this process may use.
type Found struct {
	// Cards is in CUDA's order; the first card is cuda:0.
	Cards []Card `json:"cards"`
	// Source is where the cards were found: nvidia-smi, NVML, the driver's folder
	// (/proc/driver/nvidia) or CUDA_VISIBLE_DEVICES. It is empty if there are no cards.
	Source string `json:"source,omitempty"`
	// Visible is the value of CUDA_VISIBLE_DEVICES. It is nil if the variable is not set.
	Visible *string `json:"cuda_visible_devices,omitempty"`
	// Notes are remarks for people, for example that an entry of CUDA_VISIBLE_DEVICES is not a
	// card, or why there are no cards.
	Notes []string `json:"notes,omitempty"`
}

// Device returns the device name of Found.Cards[n]: cuda:<n>.
func Device(n int) string { return fmt.Sprintf("cuda:%d", n) }

// GiB formats a number of bytes for people.
func GiB(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }
