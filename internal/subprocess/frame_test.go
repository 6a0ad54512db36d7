package subprocess

import (
	"bytes"
	"testing"
)

// Whatever arrives, readFrame returns, and what it accepts is within the bounds
// and survives being sent again.
func FuzzReadFrame(f *testing.F) {
	var good bytes.Buffer
	if err := writeFrame(&good, header{Op: opDo, Seq: 7, Capacity: 9, Length: 3, Message: "m"}, []byte("body"), maxBody); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readFrame(bytes.NewReader(data), maxBody)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeFrame(&again, got.header, got.body, maxBody); err != nil {
			t.Fatal(err)
		}
		twice, err := readFrame(&again, maxBody)
		if err != nil || twice.header != got.header || !bytes.Equal(twice.body, got.body) {
			t.Fatalf("%+v became %+v: %v", got, twice, err)
		}
	})
}
