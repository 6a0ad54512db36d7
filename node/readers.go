package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/media/ffmpeg"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/ppocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/ppocr/fold"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
	"github.com/rewardloop/rewardloop/rewards/vlm"
)

// Readers create the text readers of a process, one of each kind, and own what the readers run on:
// Tesseract's child processes, and the devices of models. Nothing starts before a reader is warmed
// or reads.
type Readers struct {
	cfg config.Pool
	// Devices are shared with all other scorers that run models.
	Devices *Devices
	// Decoder decodes all pictures of the process, within one budget.
	Decoder *media.Decoder
	// Judges are the vision-language models of this process, one of which may be a text reader.
	Judges *vlm.Judges

	mu     sync.Mutex // guards what follows
	closed bool
	tess   *tesseract.Reader
	// replaced says why Tesseract reads where PP-OCR would.
	replaced []string
	ppocr    map[ocr.ReaderOptions]*ppocr.Reader
}

var _ ocr.Readers = (*Readers)(nil)

// Kinds returns the kinds of child processes of a program that contains a node. The program's main
// must first pass these kinds to subprocess.Main.
func Kinds() []subprocess.Kind { return slices.Concat(tesseract.Kinds(), ort.Kinds()) }

// NewReaders returns Readers for the section pool of a configuration.
func NewReaders(cfg config.Pool) (*Readers, error) {
	devices, err := newDevices(cfg)
	if err != nil {
		return nil, err
	}
	decoder, err := NewDecoder(cfg.Decode)
	if err != nil {
		return nil, err
	}
	judges := vlm.NewJudges(vlm.Deps{Nets: devices, Folder: devices.Folder, Decoder: decoder})
	return &Readers{cfg: cfg, Devices: devices, Decoder: decoder, Judges: judges, ppocr: make(map[ocr.ReaderOptions]*ppocr.Reader)}, nil
}

// NewDecoder returns a decoder of pictures, and of videos if the configuration selects an ffmpeg.
func NewDecoder(cfg media.Config) (*media.Decoder, error) {
	decoder, err := media.New(cfg)
	if err != nil {
		return nil, err
	}
	player, err := ffmpeg.Find(cfg)
	if err != nil {
		return nil, err
	}
	if player != nil { // a nil one in an interface is none
		decoder.SetPlayer(player)
	}
	return decoder, nil
}

// Models returns the store of model files that a configuration selects.
func Models(cfg config.Pool) (models.Store, error) {
	store, err := models.FromEnvironment(os.LookupEnv)
	if cfg.ModelsDir != "" {
		store.Dir, err = cfg.ModelsDir, nil // no folder was all that could be wrong
	}
	return store, err
}

// Choice is a selected text reader.
type Choice struct {
	// Reader is ocr.ReaderPPOCR, ocr.ReaderTesseract or ocr.ReaderVLM.
	Reader string
	// Detail contains versions, model and device, for people.
	Detail string
	// Instead is why "auto" did not select PP-OCR. Nil: "auto" selected PP-OCR, or the reader is
	// not "auto".
	Instead error
}

// Choose returns the reader for the options without creating it. The error contains what is missing
// and how to install it.
func (r *Readers) Choose(o ocr.ReaderOptions) (Choice, error) {
	if o.Reader == ocr.ReaderTesseract {
		detail, err := tesseract.Available()
		return Choice{Reader: ocr.ReaderTesseract, Detail: detail}, err
	}
	if o.Reader == ocr.ReaderVLM {
		return r.chooseVLM(o)
	}
	library, ppErr := r.complete(o)
	if ppErr == nil {
		return Choice{
			Reader: ocr.ReaderPPOCR,
			Detail: fmt.Sprintf("PP-OCR (%s, %s, on %s) with ONNX Runtime %s", o.Model, o.Mode, o.Device, library.Version),
		}, nil
	}
	// A card that was asked for is not replaced by a CPU with another reader, and no other
	// reader takes a whole picture for one line.
	if o.Reader == ocr.ReaderPPOCR || o.Device != infer.CPU || !o.Detect {
		return Choice{}, ppErr
	}
	detail, err := tesseract.Available()
	if err != nil {
		return Choice{}, fmt.Errorf("no text reader is available. PP-OCR: %w\nTesseract: %w", ppErr, err)
	}
	return Choice{Reader: ocr.ReaderTesseract, Detail: detail, Instead: ppErr}, nil
}

// chooseVLM says whether a vision-language model is here.
func (r *Readers) chooseVLM(o ocr.ReaderOptions) (Choice, error) {
	library, err := ort.Find(r.cfg.ONNX.Library)
	if err != nil {
		return Choice{}, err
	}
	folder, err := r.Devices.Folder(vlmOf(o).Model)
	if err != nil {
		return Choice{}, err
	}
	return Choice{
		Reader: ocr.ReaderVLM,
		Detail: fmt.Sprintf("the vision-language model in %s on %s with ONNX Runtime %s", folder, o.Device, library.Version),
	}, nil
}

// vlmOf is the model that reads for the options.
func vlmOf(o ocr.ReaderOptions) vlm.Options {
	if o.Model == ocr.DefaultModel {
		o.Model = ocr.DefaultVLM
	}
	return vlm.Options{Model: o.Model, Device: o.Device}
}

// roles are the files of a PP-OCR model that the options use.
func roles(o ocr.ReaderOptions) []string {
	if !o.Detect {
		return []string{"rec"}
	}
	return []string{"det", "rec"}
}

// complete says whether all that PP-OCR needs is here.
func (r *Readers) complete(o ocr.ReaderOptions) (ort.Library, error) {
	m, err := models.Find(o.Model)
	if err != nil {
		return ort.Library{}, err
	}
	for _, role := range roles(o) {
		if _, ok := m.File(role); !ok {
			return ort.Library{}, fmt.Errorf("model %s does not read text: it has no file %q", m.Name, role)
		}
	}
	if !r.Devices.store.Have(m) {
		return ort.Library{}, infer.Marked(models.ErrMissing,
			fmt.Errorf("model %s is not in %s: run rewardloop models pull %s", m.Name, r.Devices.store.Dir, m.Name))
	}
	return ort.Find(r.cfg.ONNX.Library)
}

// Reader implements ocr.Readers.
func (r *Readers) Reader(o ocr.ReaderOptions) (ocr.TextReader, error) {
	choice, err := r.Choose(o)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("%w: the text readers are closed", rewards.Unavailable)
	}
	if choice.Instead != nil {
		if why := choice.Instead.Error(); !slices.Contains(r.replaced, why) {
			r.replaced = append(r.replaced, why)
		}
	}
	switch choice.Reader {
	case ocr.ReaderTesseract:
		return r.tesseract()
	case ocr.ReaderVLM:
		return r.Judges.Judge(vlmOf(o))
	}
	o.Reader = ocr.ReaderPPOCR // auto and ppocr are the same reader
	return r.reader(o)
}

// Replaced returns the reasons why rewards use Tesseract instead of PP-OCR.
func (r *Readers) Replaced() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.replaced)
}

func (r *Readers) tesseract() (ocr.TextReader, error) {
	if r.tess != nil {
		return r.tess, nil
	}
	cfg := r.cfg.Tesseract
	cfg.Isolation = tesseract.Isolation(r.cfg.Isolation)
	reader, err := tesseract.New(cfg)
	if err != nil {
		return nil, err
	}
	r.tess = reader
	return reader, nil
}

func (r *Readers) reader(o ocr.ReaderOptions) (ocr.TextReader, error) {
	if made := r.ppocr[o]; made != nil {
		return made, nil
	}
	m, err := models.Find(o.Model)
	if err != nil {
		return nil, err
	}
	var files ppocr.Models
	for _, role := range roles(o) {
		made, err := r.model(m, role, o.Device)
		if err != nil {
			return nil, err
		}
		if role == "rec" {
			files.Rec = made
		} else {
			files.Det = made
		}
	}
	made, err := ppocr.New(ppocr.Config{
		Profile: ppocr.Profile(o.Profile), Mode: ppocr.Mode(o.Mode), WholePicture: !o.Detect, SwapRB: o.SwapRB,
	}, files)
	if err != nil {
		return nil, err
	}
	r.ppocr[o] = made
	return made, nil
}

// model is a file of a model on a device.
func (r *Readers) model(m models.Model, role, device string) (*pool.Model, error) {
	path, err := r.Devices.store.Path(m, role)
	if err != nil {
		return nil, err
	}
	f, _ := m.File(role)
	path, sum := r.folded(path, f.SHA256)
	return r.Devices.model(infer.Model{Name: m.Name + "/" + role, Path: path, SHA256: sum, Device: device})
}

// folded is the file to load for a model, and its sum: one that computes the same in
// less time (package fold), beside the models or, where those cannot be written to, in
// the user's cache. A file that cannot be folded is loaded as it is; whatever is wrong
// with it the loading then says.
func (r *Readers) folded(path, sum string) (use, useSum string) {
	folders := []string{filepath.Join(r.Devices.store.Dir, "folded")}
	if cache, err := os.UserCacheDir(); err == nil {
		folders = append(folders, filepath.Join(cache, "rewardloop", "folded"))
	}
	for _, folder := range folders {
		if use, useSum, err := fold.File(path, sum, folder); err == nil {
			return use, useSum
		}
	}
	return path, sum
}

// Children returns the state of the child processes that have been started, by name: "tesseract",
// and those of the devices.
func (r *Readers) Children() map[string]subprocess.Stats {
	out := r.Devices.Children()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tess != nil {
		out["tesseract"] = r.tess.Stats()
	}
	return out
}

// Close closes the readers and then the resources on which they run. Further calls have no effect.
func (r *Readers) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	tess, made := r.tess, r.ppocr
	r.mu.Unlock()
	var errs []error
	for _, reader := range made {
		errs = append(errs, reader.Close())
	}
	errs = append(errs, r.Devices.Close())
	if tess != nil {
		errs = append(errs, tess.Close())
	}
	return errors.Join(errs...)
}
