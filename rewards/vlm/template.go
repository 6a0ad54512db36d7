package vlm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	gonja "github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

// chatTemplate is a Jinja template and the file it came from; zero: there is none.
type chatTemplate struct{ source, file string }

// Bounds of a chat template: its bytes, of which the longest in use have 20,000, and how
// deep its brackets stand in one another. The parser goes down 16 KiB of stack for each
// bracket, and a stack that is full ends the process.
const (
	maxTemplateFile  = 1 << 15
	maxTemplateDepth = 200
)

// readTemplate finds the folder's chat template where transformers looks for it.
func (f *folder) readTemplate() (chatTemplate, error) {
	data, err := f.read("chat_template.jinja", maxTemplateFile)
	if err != nil {
		return chatTemplate{}, err
	}
	if data != nil {
		return chatTemplate{string(data), "chat_template.jinja"}, nil
	}
	if data, err = f.read("chat_template.json", maxTemplateFile); err != nil {
		return chatTemplate{}, err
	}
	if data != nil {
		var object struct {
			ChatTemplate string `json:"chat_template"`
		}
		if err := decodeLoose("chat_template.json", data, &object); err != nil {
			return chatTemplate{}, err
		}
		return chatTemplate{object.ChatTemplate, "chat_template.json"}, nil
	}
	source, err := namedTemplate(f.tokenizerConfig.ChatTemplate)
	if source == "" || err != nil {
		return chatTemplate{}, err
	}
	return chatTemplate{source, "tokenizer_config.json"}, nil
}

// namedTemplate is chat_template of tokenizer_config.json: a text, or a list of named
// ones, of which "default" is taken.
func namedTemplate(raw json.RawMessage) (string, error) {
	var one string
	if len(raw) == 0 || json.Unmarshal(raw, &one) == nil {
		return one, nil
	}
	var many []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := decodeLoose("tokenizer_config.json: chat_template", raw, &many); err != nil {
		return "", err
	}
	for _, t := range many {
		if t.Name == "default" {
			return t.Template, nil
		}
	}
	return "", errors.New(`tokenizer_config.json: chat_template: none of the list is named "default"`)
}

// renderer makes the text of a conversation.
type renderer func(turns []turn) (string, error)

// probes are the conversations that two templates must agree on.
func probes() [][]turn {
	text := func(s string) part { return part{Text: s} }
	picture := part{Image: true}
	return [][]turn{
		{{"user", []part{picture, text("What is in it? <b>\"1 & 2\"</b>")}}},
		{{"user", []part{text(" One line\nand a second. ")}}},
		{{"system", []part{text("You are brief.")}}, {"user", []part{text("First: "), picture, text(" Second: "), picture, text("Same?")}}},
		{{"user", []part{picture, text("Well?")}}, {"assistant", []part{text("Yes.")}}, {"user", []part{text("Sure?")}}},
	}
}

// newRenderer is the family's own renderer where the folder's template says the same,
// or there is none; else the folder's template. The second result says which it is.
func newRenderer(family family, t chatTemplate, c tokenizerConfig) (render renderer, own bool, err error) {
	coded := func(turns []turn) (string, error) { return family.Render(turns), nil }
	if strings.TrimSpace(t.source) == "" {
		return coded, true, nil
	}
	compiled, err := compile(t.source)
	if err != nil {
		return nil, false, fmt.Errorf("the chat template in %s cannot be read: %w", t.file, err)
	}
	theirs := func(turns []turn) (string, error) { return compiled.render(turns, c) }
	own = true
	for i, probe := range probes() {
		got, err := theirs(probe)
		if err == nil && strings.Count(got, family.ImageToken()) != pictures(probe) {
			err = fmt.Errorf("the text has %d times %s for %d pictures", strings.Count(got, family.ImageToken()), family.ImageToken(), pictures(probe))
		}
		if i == 0 && err != nil {
			return nil, false, fmt.Errorf("the chat template in %s cannot be used: %w", t.file, err)
		}
		if err != nil || got != family.Render(probe) { // some know no system message
			own = false
		}
	}
	if own {
		return coded, true, nil
	}
	return theirs, false, nil
}

func pictures(turns []turn) int {
	n := 0
	for _, t := range turns {
		for _, p := range t.Parts {
			if p.Image {
				n++
			}
		}
	}
	return n
}

// jinja is a compiled template. It may be rendered by several goroutines.
type jinja struct{ template *exec.Template }

const templateName = "/chat_template"

// compile reads a template as transformers does: block tags take the newline behind
// them and the space before them. It can include no files.
func compile(source string) (j jinja, err error) {
	if n := depth(source); n > maxTemplateDepth {
		return j, fmt.Errorf("brackets are nested %d deep, want at most %d", n, maxTemplateDepth)
	}
	err = quiet(func() error {
		cfg := gonja.New()
		cfg.TrimBlocks, cfg.LeftStripBlocks = true, true
		loader, err := loaders.NewMemoryLoader(map[string]string{templateName: source})
		if err != nil {
			return err //nolint:wrapcheck // newRenderer names the file
		}
		j.template, err = exec.NewTemplate(templateName, cfg, loader, &exec.Environment{
			Context: boundedGlobals().Update(builtins.GlobalVariables), Filters: builtins.Filters, Tests: builtins.Tests,
			ControlStructures: boundedControls(), Methods: builtins.Methods,
		})
		return err //nolint:wrapcheck // newRenderer names the file
	})
	return j, err
}

// depth is how deep brackets stand in one another; those within texts count, too.
func depth(source string) int {
	deep, deepest := 0, 0
	for i := range len(source) {
		switch source[i] {
		case '(', '[', '{':
			deep++
			deepest = max(deepest, deep)
		case ')', ']', '}':
			deep = max(deep-1, 0)
		}
	}
	return deepest
}

// quiet makes an error of a panic of the template engine, and shortens its errors: they
// quote the template.
func quiet(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the template engine failed: %v", p)
		}
		if err != nil && len(err.Error()) > maxTemplateError {
			text := err.Error()
			err = fmt.Errorf("%s … %s", clipTo(text, maxTemplateError/2), strings.ToValidUTF8(text[len(text)-maxTemplateError/2:], ""))
		}
	}()
	return do()
}

const maxTemplateError = 400

// render renders a conversation, open for the answer.
func (j jinja) render(turns []turn, c tokenizerConfig) (string, error) {
	messages := make([]any, 0, len(turns))
	for _, t := range turns {
		content := make([]any, 0, len(t.Parts))
		for _, p := range t.Parts {
			if p.Image {
				content = append(content, map[string]any{"type": "image"})
			} else {
				content = append(content, map[string]any{"type": "text", "text": p.Text})
			}
		}
		messages = append(messages, map[string]any{"role": t.Role, "content": content})
	}
	e := new(effort)
	err := quiet(func() error {
		return j.template.Execute(e, exec.NewContext(map[string]any{ //nolint:wrapcheck // the callers say whose template it is
			"messages": messages, "add_generation_prompt": true,
			"bos_token": c.BOS.text, "eos_token": c.EOS.text,
			"raise_exception": raiseException, "strftime_now": strftimeNow,
			effortName: e,
		}))
	})
	return e.text.String(), err
}

// raiseException is what templates call where a conversation is not theirs.
func raiseException(_ *exec.Evaluator, args *exec.VarArgs) (string, error) {
	reason := ""
	if len(args.Args) > 0 {
		reason = args.Args[0].String()
	}
	return "", fmt.Errorf("the chat template raised an error: %s", reason)
}

// strftimeNow is the date that some templates tell the model, with the directives of
// strftime that are in use.
func strftimeNow(_ *exec.Evaluator, args *exec.VarArgs) (string, error) {
	if len(args.Args) != 1 {
		return "", errors.New("strftime_now: want one format")
	}
	now := time.Now()
	var b strings.Builder
	format := args.Args[0].String()
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		layout, ok := map[byte]string{
			'Y': "2006", 'm': "01", 'd': "02", 'b': "Jan", 'B': "January", 'H': "15", 'M': "04", 'S': "05", 'A': "Monday", 'a': "Mon", 'y': "06",
		}[format[i]]
		switch {
		case ok:
			b.WriteString(now.Format(layout))
		case format[i] == '%':
			b.WriteByte('%')
		default:
			return "", fmt.Errorf("strftime_now: unknown directive %%%c", format[i])
		}
	}
	return b.String(), nil
}

func clipTo(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}
