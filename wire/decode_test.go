package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// blob puts a length in front of a header and data behind it.
func blob(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

// framed wraps the text of a sample and of tensors into a header.
func framed(sample, tensors string, data int) []byte {
	if tensors != "" {
		tensors = "," + tensors
	}
	return blob(`{"__metadata__":{"sample":`+strconv.Quote(sample)+`}`+tensors+`}`, data)
}

const (
	imageEntry = `{"tensor":"x","kind":"image","layout":"HWC","encoding":"raw"}`
	rgb2x2     = `"x":{"dtype":"U8","shape":[2,2,3],"data_offsets":[0,12]}`
)

func withMedia(entry string) string { return `{"id":"s","media":[` + entry + `]}` }

type badFrame struct {
	name  string
	frame []byte
	want  error
	class rewards.Class
	id    string
}

func badHeaders() []badFrame {
	deep := strings.Repeat("[", 100_000)
	long := strings.Repeat("n", wire.MaxNameBytes+1)
	bad := func(name string, frame []byte, want error, id string) badFrame {
		return badFrame{name, frame, want, rewards.Malformed, id}
	}
	tooLarge := func(name string, frame []byte, id string) badFrame {
		return badFrame{name, frame, wire.ErrTooLarge, rewards.TooLarge, id}
	}
	return []badFrame{
		bad("nothing", nil, wire.ErrTruncated, ""),
		bad("half a length", make([]byte, 4), wire.ErrTruncated, ""),
		bad("a header longer than the message", append(binary.LittleEndian.AppendUint64(nil, 500), `{"__metadata__":{"sample":"{\"id\":\"s\",`...), wire.ErrTruncated, ""),
		bad("a header cut after its metadata", append(binary.LittleEndian.AppendUint64(nil, 500), `{"__metadata__":{"sample":"{\"id\":\"s\"}"},"x":`...), wire.ErrTruncated, "s"),
		tooLarge("a header of 1 MiB and a byte", binary.LittleEndian.AppendUint64(nil, wire.MaxHeaderBytes+1), ""),
		tooLarge("a header of 2^64-1 bytes", bytes.Repeat([]byte{0xff}, 16), ""),
		bad("an empty header", blob("", 0), wire.ErrJSON, ""),
		bad("text", []byte(`{"type":"hello","run":"r"}        `), wire.ErrTooLarge, "").as(rewards.TooLarge),
		bad("an array", blob(`[]`, 0), wire.ErrJSON, ""),
		bad("space in front", blob(` {}`, 0), wire.ErrJSON, ""),
		bad("a newline behind", blob(`{"__metadata__":{"sample":"{\"id\":\"s\"}"}}`+"\n", 0), wire.ErrTrailing, "s"),
		bad("no metadata", blob(`{}`, 0), wire.ErrMissing, ""),
		bad("metadata without sample", blob(`{"__metadata__":{}}`, 0), wire.ErrMissing, ""),
		bad("metadata with another name", blob(`{"__metadata__":{"sample":"{\"id\":\"s\"}","format":"pt"}}`, 0), wire.ErrUnknownName, "s"),
		bad("a sample that is no string", blob(`{"__metadata__":{"sample":{"id":"s"}}}`, 0), wire.ErrJSON, ""),
		bad("twice the metadata", blob(`{"__metadata__":{"sample":"{\"id\":\"s\"}"},"__metadata__":{"sample":"{\"id\":\"t\"}"}}`, 0), wire.ErrDuplicate, "s"),
		bad("a literal that is none", framed(`{"id":"s","ground_truth":NaN}`, "", 0), wire.ErrJSON, "s"),
		bad("a control character in a string", framed("{\"id\":\"s\",\"prompt\":\"a\nb\"}", "", 0), wire.ErrJSON, "s"),
		bad("a sample that ends early", framed(`{"id":"s"`, "", 0), wire.ErrJSON, "s"),
		bad("two samples", framed(`{"id":"s"}{"id":"t"}`, "", 0), wire.ErrJSON, "s"),
		bad("no id", framed(`{"prompt":"p"}`, "", 0), wire.ErrMissing, ""),
		bad("an empty id", framed(`{"id":""}`, "", 0), wire.ErrMissing, ""),
		bad("an id of many bytes", framed(`{"id":"`+long+`"}`, "", 0), wire.ErrValue, ""),
		bad("a null id", framed(`{"id":null}`, "", 0), wire.ErrJSON, ""),
		bad("a name twice", framed(`{"id":"s","prompt":"a","prompt":"b"}`, "", 0), wire.ErrDuplicate, "s"),
		bad("a name twice, once escaped", framed(`{"id":"s","\u0069d":"t"}`, "", 0), wire.ErrDuplicate, "s"),
		bad("a name twice deep inside", framed(`{"id":"s","extra_info":{"a":[{"b":1,"b":2}]}}`, "", 0), wire.ErrDuplicate, "s"),
		bad("a name twice among many", framed(`{"id":"s","extra_info":{`+manyNames(40)+`,"k3":0}}`, "", 0), wire.ErrDuplicate, "s"),
		bad("a name in the wrong case", framed(`{"id":"s","Prompt":"a"}`, "", 0), wire.ErrUnknownName, "s"),
		bad("an unknown name", framed(`{"foo":1,"id":"s"}`, "", 0), wire.ErrUnknownName, "s"),
		bad("invalid UTF-8", blob("{\"__metadata__\":{\"sample\":\"{\\\"id\\\":\\\"s\\\",\\\"prompt\\\":\\\"\xff\\\"}\"}}", 0), wire.ErrUTF8, ""),
		bad("invalid UTF-8 in free JSON behind escapes", blob("{\"__metadata__\":{\"sample\":\"{\\\"id\\\":\\\"s\\\"}\"},\"\xc3\x28\":{}}", 0), wire.ErrUTF8, "s"),
		bad("a lone surrogate", framed(`{"id":"s","prompt":"\ud83d"}`, "", 0), wire.ErrUTF8, "s"),
		bad("half a surrogate pair", framed(`{"id":"s","prompt":"\ud83dx"}`, "", 0), wire.ErrUTF8, "s"),
		bad("an escape that is none", framed(`{"id":"s","prompt":"\x41"}`, "", 0), wire.ErrJSON, "s"),
		bad("a broken \\u", framed(`{"id":"s","prompt":"\u00g0"}`, "", 0), wire.ErrJSON, "s"),
		bad("a control character behind an escape", blob("{\"__metadata__\":{\"sample\":\"{\\\"id\\\":\\\"s\\\"\x01}\"}}", 0), wire.ErrJSON, ""),
		bad("a surrogate and a broken \\u", framed(`{"id":"s","prompt":"\ud83d\uZZZZ"}`, "", 0), wire.ErrJSON, "s"),
		bad("a \\u that ends with the text", framed(`{"id":"s","prompt":"\u00`, "", 0), wire.ErrJSON, "s"),
		bad("a point and no digit", framed(`{"id":"s","ground_truth":1.}`, "", 0), wire.ErrJSON, "s"),
		bad("an exponent and no digit", framed(`{"id":"s","ground_truth":1e+}`, "", 0), wire.ErrJSON, "s"),
		bad("a colon in a list", framed(`{"id":"s","ground_truth":[1:2]}`, "", 0), wire.ErrJSON, "s"),
		bad("objects 100 deep", framed(`{"id":"s","ground_truth":`+strings.Repeat(`{"a":`, 100)+`}`, "", 0), wire.ErrNesting, "s"),
		bad("a split that is no string", framed(`{"id":"s","split":1}`, "", 0), wire.ErrJSON, "s"),
		bad("a very long unknown name", framed(`{"id":"s","`+strings.Repeat("n", 500)+`":1}`, "", 0), wire.ErrUnknownName, "s"),
		bad("a step beyond int64", framed(`{"id":"s","step":9223372036854775808}`, "", 0), wire.ErrNumber, "s"),
		bad("an integer beyond int64 in free JSON", framed(`{"id":"s","ground_truth":[-9223372036854775809]}`, "", 0), wire.ErrNumber, "s"),
		bad("a float beyond float64", framed(`{"id":"s","ground_truth":1e999}`, "", 0), wire.ErrNumber, "s"),
		bad("a step with a fraction", framed(`{"id":"s","step":1.0}`, "", 0), wire.ErrValue, "s"),
		bad("a step with a leading zero", framed(`{"id":"s","step":01}`, "", 0), wire.ErrJSON, "s"),
		bad("a negative index", framed(`{"id":"s","index":-1}`, "", 0), wire.ErrValue, "s"),
		bad("a huge group", framed(`{"id":"s","group_size":2147483648}`, "", 0), wire.ErrValue, "s"),
		bad("a split that is none", framed(`{"id":"s","split":"test"}`, "", 0), wire.ErrValue, "s"),
		bad("a traceparent that is none", framed(`{"id":"s","traceparent":"00-0"}`, "", 0), wire.ErrValue, "s"),
		bad("a traceparent of zeros", framed(`{"id":"s","traceparent":"00-00000000000000000000000000000000-00f067aa0ba902b7-01"}`, "", 0), wire.ErrValue, "s"),
		bad("a traceparent that is no text", framed(`{"id":"s","traceparent":1}`, "", 0), wire.ErrJSON, "s"),
		bad("a deadline of zero", framed(`{"id":"s","deadline_ms":0}`, "", 0), wire.ErrValue, "s"),
		bad("a deadline in a year", framed(`{"id":"s","deadline_ms":31536000000}`, "", 0), wire.ErrValue, "s"),
		bad("extra_info that is no object", framed(`{"id":"s","extra_info":[1]}`, "", 0), wire.ErrJSON, "s"),
		bad("arrays 100,000 deep", framed(`{"id":"s","ground_truth":`+deep+`}`, "", 0), wire.ErrNesting, "s"),
		bad("arrays 100,000 deep in place of a tensor", blob(`{"x":`+deep+`}`, 0), wire.ErrJSON, ""),
	}
}

// as changes the class that is expected.
func (b badFrame) as(c rewards.Class) badFrame {
	b.class = c
	return b
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"k` + strconv.Itoa(i) + `":1`)
	}
	return b.String()
}

func badTensors() []badFrame {
	bad := func(name, sample, tensors string, want error) badFrame {
		return badFrame{name, framed(sample, tensors, 12), want, rewards.Malformed, "s"}
	}
	img := func(name, tensor string, want error) badFrame {
		return bad(name, withMedia(imageEntry), `"x":`+tensor, want)
	}
	entry := func(name, e string, want error) badFrame { return bad(name, withMedia(e), rgb2x2, want) }
	huge := bad("data beyond the limit", withMedia(imageEntry), `"x":{"dtype":"U8","shape":[1048576,1048576,3],"data_offsets":[0,3298534883328]}`, wire.ErrTooLarge)
	avi := entry("avi", `{"tensor":"x","kind":"video","encoding":"avi"}`, wire.ErrEncoding)
	bmp := entry("bmp", `{"tensor":"x","kind":"image","encoding":"bmp"}`, wire.ErrEncoding)
	ogg := entry("ogg", `{"tensor":"x","kind":"audio","encoding":"ogg","sample_rate":16000}`, wire.ErrEncoding)
	return []badFrame{
		huge.as(rewards.TooLarge), avi.as(wire.UnsupportedEncoding), bmp.as(wire.UnsupportedEncoding), ogg.as(wire.UnsupportedEncoding),
		img("a tensor that is a number", `7`, wire.ErrJSON),
		img("a tensor without dtype", `{"shape":[2,2,3],"data_offsets":[0,12]}`, wire.ErrMissing),
		img("a tensor without offsets", `{"dtype":"U8","shape":[2,2,3]}`, wire.ErrMissing),
		img("a tensor with another name", `{"dtype":"U8","shape":[2,2,3],"data_offsets":[0,12],"strides":[1]}`, wire.ErrUnknownName),
		img("a tensor's name in the wrong case", `{"DType":"U8","shape":[2,2,3],"data_offsets":[0,12]}`, wire.ErrUnknownName),
		img("a dtype nobody knows", `{"dtype":"C64","shape":[2,2,3],"data_offsets":[0,12]}`, wire.ErrDType),
		img("a dtype that lies", `{"dtype":"F32","shape":[2,2,3],"data_offsets":[0,12]}`, wire.ErrShape),
		img("a negative axis", `{"dtype":"U8","shape":[-2,-2,3],"data_offsets":[0,12]}`, wire.ErrShape),
		img("an empty axis", `{"dtype":"U8","shape":[0,2,3],"data_offsets":[0,0]}`, wire.ErrShape),
		img("axes whose product wraps to 12", `{"dtype":"U8","shape":[4611686018427387907,4,1],"data_offsets":[0,12]}`, wire.ErrShape),
		img("an axis beyond int64", `{"dtype":"U8","shape":[99999999999999999999,1,1],"data_offsets":[0,12]}`, wire.ErrNumber),
		img("nine axes", `{"dtype":"U8","shape":[2,2,3,1,1,1,1,1,1],"data_offsets":[0,12]}`, wire.ErrShape),
		img("a shape of floats", `{"dtype":"U8","shape":[2.0,2,3],"data_offsets":[0,12]}`, wire.ErrValue),
		img("three offsets", `{"dtype":"U8","shape":[2,2,3],"data_offsets":[0,12,24]}`, wire.ErrValue),
		img("negative offsets", `{"dtype":"U8","shape":[2,2,3],"data_offsets":[-12,0]}`, wire.ErrOffsets),
		img("offsets that run backwards", `{"dtype":"U8","shape":[2,2,3],"data_offsets":[12,0]}`, wire.ErrOffsets),
		img("a gap in front", `{"dtype":"U8","shape":[2,2,3],"data_offsets":[4,16]}`, wire.ErrOffsets),
		bad("an overlap", withMedia(imageEntry+`,{"tensor":"y","kind":"image","layout":"HWC","encoding":"raw"}`), rgb2x2+`,"y":{"dtype":"U8","shape":[1,1,3],"data_offsets":[9,12]}`, wire.ErrOffsets),
		bad("the same place twice", withMedia(imageEntry+`,{"tensor":"y","kind":"image","layout":"HWC","encoding":"raw"}`), rgb2x2+`,"y":{"dtype":"U8","shape":[2,2,3],"data_offsets":[0,12]}`, wire.ErrOffsets),
		bad("a tensor no media names", `{"id":"s"}`, rgb2x2, wire.ErrMedia),
		bad("a tensor that is not there", withMedia(imageEntry), ``, wire.ErrMedia),
		bad("a tensor used twice", withMedia(imageEntry+","+imageEntry), rgb2x2, wire.ErrMedia),
		entry("no tensor", `{"kind":"image","layout":"HWC","encoding":"raw"}`, wire.ErrMedia),
		entry("tensor and tensors", `{"tensor":"x","tensors":["x"],"kind":"image","layout":"HWC","encoding":"raw"}`, wire.ErrMedia),
		entry("tensors of a raw image", `{"tensors":["x"],"kind":"image","layout":"HWC","encoding":"raw"}`, wire.ErrMedia),
		entry("frames of one tensor", `{"tensor":"x","kind":"video","encoding":"frames"}`, wire.ErrMedia),
		entry("no frames", `{"tensors":[],"kind":"video","encoding":"frames"}`, wire.ErrMedia),
		entry("a raw tensor as a frame", `{"tensors":["x"],"kind":"video","encoding":"frames"}`, wire.ErrMedia),
		entry("no kind", `{"tensor":"x","layout":"HWC","encoding":"raw"}`, wire.ErrMedia),
		entry("a kind that is none", `{"tensor":"x","kind":"mesh","layout":"HWC","encoding":"raw"}`, wire.ErrMedia),
		entry("no encoding", `{"tensor":"x","kind":"image","layout":"HWC"}`, wire.ErrMedia),
		entry("raw without layout", `{"tensor":"x","kind":"image","encoding":"raw"}`, wire.ErrMedia),
		entry("a layout that is none", `{"tensor":"x","kind":"image","layout":"WHC","encoding":"raw"}`, wire.ErrMedia),
		entry("a layout in lower case", `{"tensor":"x","kind":"image","layout":"hwc","encoding":"raw"}`, wire.ErrMedia),
		entry("a layout of another rank", `{"tensor":"x","kind":"video","layout":"THWC","encoding":"raw"}`, wire.ErrMedia),
		entry("two channels", `{"tensor":"x","kind":"image","layout":"CHW","encoding":"raw"}`, wire.ErrMedia),
		entry("a raw picture called jpeg", `{"tensor":"x","kind":"image","encoding":"jpeg"}`, wire.ErrMedia),
		entry("jpeg as a video", `{"tensor":"x","kind":"video","encoding":"jpeg"}`, wire.ErrMedia),
		entry("jpeg with a layout", `{"tensor":"x","kind":"image","encoding":"jpeg","layout":"HWC"}`, wire.ErrMedia),
		entry("a latent of bytes", `{"tensor":"x","kind":"latent","layout":"HWC","encoding":"raw"}`, wire.ErrMedia),
		entry("a latent with a letter twice", `{"tensor":"x","kind":"latent","layout":"CHH","encoding":"raw"}`, wire.ErrMedia),
		bad("audio of floats without rate", withMedia(`{"tensor":"x","kind":"audio","layout":"T","encoding":"raw"}`), `"x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}`, wire.ErrMedia),
		bad("a tensor without a name", withMedia(imageEntry), `"":{"dtype":"U8","shape":[2,2,3],"data_offsets":[0,12]}`, wire.ErrValue),
		img("eight bytes an element", `{"dtype":"F64","shape":[2,2,3],"data_offsets":[0,12]}`, wire.ErrShape),
		entry("audio without rate", `{"tensor":"x","kind":"audio","layout":"T","encoding":"raw"}`, wire.ErrMedia),
		entry("fps of an image", `{"tensor":"x","kind":"image","layout":"HWC","encoding":"raw","fps":8}`, wire.ErrMedia),
		entry("negative fps", `{"tensors":["x"],"kind":"video","encoding":"frames","fps":-1}`, wire.ErrMedia),
		entry("a sample_rate of an image", `{"tensor":"x","kind":"image","layout":"HWC","encoding":"raw","sample_rate":1}`, wire.ErrMedia),
		entry("an unknown name in media", `{"tensor":"x","kind":"image","layout":"HWC","encoding":"raw","Fps":8}`, wire.ErrUnknownName),
	}
}

func TestEveryBadHeaderIsRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range append(badHeaders(), badTensors()...) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := wire.ReadHeader(bytes.NewReader(c.frame), wire.Limits{})
			require.Error(t, err)
			var refused *wire.FrameError
			require.ErrorAs(t, err, &refused)
			require.ErrorIs(t, err, c.want)
			assert.Equal(t, c.class, refused.Class, err)
			assert.Equal(t, c.class, rewards.ClassOf(err))
			assert.Equal(t, c.id, refused.ID, err)
			assert.Less(t, len(err.Error()), 1000, "the message is short whatever the peer sent")
		})
	}
}

func TestUsualFreedomsOfAHeaderAreAccepted(t *testing.T) {
	t.Parallel()
	two := withMedia(imageEntry + `,{"tensor":"y","kind":"image","layout":"CHW","encoding":"raw"}`)
	for name, frame := range map[string][]byte{
		"white space":                     blob("{ \"__metadata__\" : {\t\"sample\" : \"{ \\\"id\\\" : \\\"s\\\" }\" } }   ", 0),
		"metadata last":                   blob(`{`+rgb2x2+`,"__metadata__":{"sample":`+strconv.Quote(withMedia(imageEntry))+`}}`, 12),
		"tensors listed out of order":     framed(two, `"y":{"dtype":"U8","shape":[1,1,2],"data_offsets":[12,14]},`+rgb2x2, 14),
		"a header that is not padded":     framed(`{"id":"sss"}`, "", 0),
		"every short escape":              framed(`{"id":"s","prompt":"\"\\\/\b\f\n\r\t\u00E9\u00Af"}`, "", 0),
		"NUL and a surrogate pair":        framed(`{"id":"s","prompt":"a\u0000b\ud83d\ude00\/"}`, "", 0),
		"the smallest and largest int64":  framed(`{"id":"s","step":-9223372036854775808,"ground_truth":9223372036854775807}`, "", 0),
		"a ground truth of any type":      framed(`{"id":"s","ground_truth":null}`, "", 0),
		"an empty name that is not an id": framed(`{"id":"s","uid":"","run":""}`, "", 0),
		"gray and alpha":                  framed(withMedia(imageEntry), `"x":{"dtype":"U8","shape":[2,2,4],"data_offsets":[0,16]}`, 16),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, err := wire.ReadHeader(bytes.NewReader(frame), wire.Limits{})
			require.NoError(t, err)
			assert.Equal(t, int64(len(frame)), h.Size)
		})
	}
}

func TestABodyMustHaveTheAnnouncedLength(t *testing.T) {
	t.Parallel()
	whole := framed(withMedia(imageEntry), rgb2x2, 12)
	for _, c := range []struct {
		name  string
		frame []byte
		want  error
	}{
		{"short", whole[:len(whole)-1], wire.ErrTruncated},
		{"no body", whole[:len(whole)-12], wire.ErrTruncated},
		{"long", append(bytes.Clone(whole), 0), wire.ErrTrailing},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var pool wire.Buffers
			r := bytes.NewReader(c.frame)
			h, err := wire.ReadHeader(r, wire.Limits{})
			require.NoError(t, err)
			_, err = h.ReadBody(r, &pool)
			var refused *wire.FrameError
			require.ErrorAs(t, err, &refused)
			require.ErrorIs(t, err, c.want)
			assert.Equal(t, "s", refused.ID)
			assert.Equal(t, rewards.Malformed, refused.Class)
			assert.Zero(t, pool.Live(), "the buffer was given back")

			_, err = wire.Decode(c.frame, wire.Limits{})
			require.ErrorIs(t, err, c.want)
		})
	}
}

func TestAFailingConnectionIsNotBlamedOnTheFrame(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	whole := framed(withMedia(imageEntry), rgb2x2, 12)
	for at := range len(whole) {
		var pool wire.Buffers
		r := io.MultiReader(bytes.NewReader(whole[:at]), iotest.ErrReader(broken))
		h, err := wire.ReadHeader(r, wire.Limits{})
		if err == nil {
			_, err = h.ReadBody(r, &pool)
		}
		require.ErrorIs(t, err, broken, "cut after %d bytes", at)
		var refused *wire.FrameError
		require.NotErrorAs(t, err, &refused)
		require.Zero(t, pool.Live())
	}
}

func TestAFrameMayComeByteByByte(t *testing.T) {
	t.Parallel()
	s := &rewards.Sample{ID: "s", Prompt: strings.Repeat("long ", 3000), Media: []*rewards.Media{raw(rewards.Image, rewards.HWC, "U8", ramp(12, 1), 2, 2, 3)}}
	m, err := wire.Encode(s, wire.Options{Deadline: time.Second})
	require.NoError(t, err)
	r := iotest.OneByteReader(bytes.NewReader(m.Bytes()))
	h, err := wire.ReadHeader(r, wire.Limits{})
	require.NoError(t, err)
	f, err := h.ReadBody(r, nil)
	require.NoError(t, err)
	assert.Equal(t, s, f.Sample())
	assert.Equal(t, m.Bytes(), f.Bytes())
	same, err := wire.Decode(m.Bytes(), wire.Limits{})
	require.NoError(t, err)
	assert.Equal(t, same.Sum(), f.Sum(), "a checksum is the same however the bytes came")
}

func TestLimitsOfTheReceiverHold(t *testing.T) {
	t.Parallel()
	whole := framed(withMedia(imageEntry), rgb2x2, 12)
	size := int64(len(whole))
	read := func(l wire.Limits) error {
		_, err := wire.ReadHeader(bytes.NewReader(whole), l)
		return err
	}
	require.NoError(t, read(wire.Limits{MessageBytes: size, HeaderBytes: size - 20}))
	require.ErrorIs(t, read(wire.Limits{MessageBytes: size - 1}), rewards.TooLarge)
	require.ErrorIs(t, read(wire.Limits{HeaderBytes: size - 21}), rewards.TooLarge)
	require.ErrorIs(t, read(wire.Limits{MessageBytes: 10}), rewards.TooLarge)
	require.NoError(t, wire.Limits{}.WithDefaults().Validate())
	require.Error(t, wire.Limits{HeaderBytes: 2 << 20}.WithDefaults().Validate())
}
