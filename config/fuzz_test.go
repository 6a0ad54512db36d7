package config_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/rewardloop/rewardloop/config"
)

func FuzzLoad(f *testing.F) {
	for _, name := range []string{"minimal", "full", "full.golden"} {
		text, err := os.ReadFile("testdata/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "loop.max_attempts=4")
	}
	f.Add([]byte("a: &a [*a, *a]\n"), "+reward.reward_functions.a={path: builtin://a}")
	f.Add([]byte("reward: {reward_functions: {a: {path: \"builtin://a\", b: ${oc.env:A}}}}"), "~reward.reward_functions.a.b")
	f.Fuzz(func(t *testing.T, text []byte, override string) {
		c, err := config.Parse("f.yaml", text, []string{override}, env("A", "1"))
		if err != nil {
			var all config.FaultsError
			if !errors.As(err, &all) || len(all) == 0 || strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("not a list of faults: %v", err)
			}
			return
		}
		if len(c.Profiles) == 0 {
			t.Fatal("no profile and no fault")
		}
		var b bytes.Buffer
		if err := c.Print(&b); err != nil {
			t.Fatal(err)
		}
		again, err := config.Parse("again.yaml", b.Bytes(), nil, env("A", "1"))
		if err != nil {
			t.Fatalf("what was printed is refused: %v\n%s", err, b.String())
		}
		var second bytes.Buffer
		if err := again.Print(&second); err != nil {
			t.Fatal(err)
		}
		if second.String() != b.String() {
			t.Fatalf("printed twice:\n%s\n%s", b.String(), second.String())
		}
	})
}
