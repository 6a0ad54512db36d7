package tesseract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// checkCanary says what is wrong with a reading of the canary. Only English is
// held to the letter: a model of another script need not know Latin capitals,
// but must answer.
func checkCanary(language string, lines []ocr.Line) error {
	got := strings.ToUpper(ocr.Text(lines))
	if !slices.Contains(strings.Split(language, "+"), "eng") || strings.ReplaceAll(got, " ", "") == strings.ReplaceAll(ocr.CanaryText, " ", "") {
		return nil
	}
	return fmt.Errorf("read %q where %q is written", got, ocr.CanaryText)
}
