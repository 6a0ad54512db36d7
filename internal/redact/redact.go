// Package redact removes secrets from texts that people may read. All code that prints
// configuration, errors, log lines and answers uses this package, so that there is one list of
// harmless values. The list is an allow list: scheme, host and path of a URL, a few names of
// headers, and options that cannot be secret. Words contains the known secrets of a process and
// removes them from every text.
package redact

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Hidden replaces a secret.
const Hidden = "***"

// left stands where a part of an address stood.
const left = "…"

// URL returns a URL without secrets: scheme, host and path. The query becomes "?…". The user, the
// password and the fragment are removed, and so is every segment of the path that looks like a key
// or follows the name of a webhook. For an ambiguous URL, only the scheme is kept. A text without
// "://" is returned unchanged, except for a user and a password.
func URL(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		if at := strings.LastIndexByte(s, '@'); at > 0 && strings.Contains(s[:at], ":") {
			return left + s[at:]
		}
		return s
	}
	if localSchemes[strings.ToLower(scheme)] {
		return s
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host, below := rest[:end], rest[end:]
	host = host[strings.LastIndexByte(host, '@')+1:]
	// A password with a slash or a question mark in it would pass for a host and a path.
	if _, err := url.Parse(s); err != nil || strings.Contains(below, "@") {
		return scheme + "://" + left
	}
	below, _, _ = strings.Cut(below, "#")
	path, _, asks := strings.Cut(below, "?")
	path = cleanPath(host, path)
	if asks {
		path += "?" + left
	}
	return scheme + "://" + host + path
}

// localSchemes name files, scorers and public models, which hold no keys.
var localSchemes = set("builtin pkg onnx file hf") //nolint:gochecknoglobals // a table

// cleanPath is a path without the segments that may be keys.
func cleanPath(host, path string) string {
	hook := slices.ContainsFunc(strings.Split(host, "."), hookWord)
	segments := strings.Split(path, "/")
	for i, s := range segments {
		switch {
		case s == "":
		case hook || randomLooking(s):
			segments[i] = left
		default:
			hook = hookWord(s) || secretWords[strings.ToLower(s)]
		}
	}
	return strings.Join(segments, "/")
}

// hookWord reports whether what follows a word in an address is the address's secret.
func hookWord(w string) bool {
	w = strings.ToLower(w)
	return strings.HasPrefix(w, "hook") || strings.HasPrefix(w, "webhook")
}

// runLength is from how many letters and digits in a row a word is taken for a key: names of
// models and files have shorter ones.
const runLength = 16

var (
	run      = regexp.MustCompile(`[A-Za-z0-9]{16,}`)
	uuid     = regexp.MustCompile(`(?i)^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	hasDigit = regexp.MustCompile(`[0-9]`)
	hasUpper = regexp.MustCompile(`[A-Z]`)
	hasLower = regexp.MustCompile(`[a-z]`)
)

// randomLooking reports whether a word may be a key: a long run of letters and digits of two
// kinds, a UUID, or name:key as some services write it.
func randomLooking(s string) bool {
	if uuid.MatchString(s) || len(s) > runLength && strings.ContainsAny(s, ":%") {
		return true
	}
	kinds := 0
	for _, kind := range []*regexp.Regexp{hasDigit, hasUpper, hasLower} {
		if kind.MatchString(s) {
			kinds++
		}
	}
	if kinds == 3 && len(s) >= 2*runLength { // base64url has - and _ in it, which break runs
		return true
	}
	for _, r := range run.FindAllString(s, -1) {
		digit, upper, lower := hasDigit.MatchString(r), hasUpper.MatchString(r), hasLower.MatchString(r)
		if digit && (upper || lower) || upper && lower && len(r) >= 2*runLength {
			return true
		}
	}
	return false
}

// secretWords are the words in the name of an option, a header, a part of a query or a
// variable that tell that its value is a secret.
//
//nolint:gochecknoglobals // a table
var secretWords = set(`token secret secrets password passwords passwd passphrase pwd pw apikey auth authorization
	authentication bearer credential credentials cred creds cookie cookies sig signature webhook webhooks dsn jwt nkey sas otp`)

// secretEnds are the ends of words that are written together.
var secretEnds = []string{"token", "secret", "password", "passwd", "apikey", "accesskey", "secretkey", "privatekey", "credentials", "webhook", "cookie", "pwd"} //nolint:gochecknoglobals // a table

// harmlessNames look like those of secrets and are not.
var harmlessNames = set(`key tls_key answer_token think_token bos_token eos_token score_key reward_key length_key reward_fn_key extra_keys pass_k`) //nolint:gochecknoglobals // a table

func set(words string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		out[w] = true
	}
	return out
}

// Named reports whether a name indicates that its value is a secret: api_key, pwd and
// SecretAccessKey do; max_tokens, tokenizer, token_file and token_name do not.
func Named(name string) bool {
	if harmlessNames[name] {
		return false
	}
	words := split(name)
	if file(name) || strings.HasSuffix(name, "_name") {
		return false
	}
	for i, w := range words {
		switch {
		case secretWords[w], slices.ContainsFunc(secretEnds, func(end string) bool { return strings.HasSuffix(w, end) }):
			return true
		case (w == "key" || w == "keys") && (i == len(words)-1 || words[i+1] == "id"), (w == "pass" || w == "pin" || w == "pat") && i == len(words)-1:
			return true
		}
	}
	return false
}

// file reports whether a name is that of a file or a folder.
func file(name string) bool {
	words := split(name)
	if len(words) == 0 {
		return false
	}
	switch words[len(words)-1] {
	case "file", "path", "dir", "folder":
		return true
	}
	return false
}

// split takes a name apart at its separators and where a capital begins a word.
func split(name string) (words []string) {
	var b strings.Builder
	end := func() {
		if b.Len() > 0 {
			words = append(words, strings.ToLower(b.String()))
			b.Reset()
		}
	}
	before := rune(0)
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			before = 0
			continue
		case unicode.IsUpper(r) && unicode.IsLower(before):
			end()
		}
		b.WriteRune(r)
		before = r
	}
	end()
	return words
}

// Header reports whether the value of a header with that name is harmless.
func Header(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Accept", "Accept-Encoding", "Accept-Language", "Content-Length", "Content-Type", "Retry-After", "User-Agent", "X-Request-Id":
		return true
	}
	return false
}

var (
	number      = regexp.MustCompile(`^[+-]?[0-9]{0,9}(\.[0-9]{1,9})?(e[+-]?[0-9]{1,3})?$`)
	placeholder = regexp.MustCompile(`^\{[a-z_.]{1,64}\}$`)
	plainWords  = regexp.MustCompile(`^[a-z]{1,12}([_-][a-z]{1,12}){0,3}$`)
	fileName    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}\.[a-z]{1,5}$`)
)

// Option returns the text of an option without secrets. For a known option, which rewardloop itself
// uses, only its URLs are cleaned. The text of another option is returned if it is a number, a
// lower-case word, a URL, a path or the name of a file; otherwise it may be a secret and becomes
// Hidden.
func Option(name, text string, known bool) string {
	switch {
	case text == "":
		return text
	case Named(name) && !boolean(text):
		return Hidden
	case strings.Contains(text, "://") && !strings.ContainsAny(text, " \t\n\""):
		return URL(text)
	case known || file(name):
		return Text(text)
	case number.MatchString(text), boolean(text), placeholder.MatchString(text), plainWords.MatchString(text), fileName.MatchString(text) && !randomLooking(text), Header(name):
		return text
	case strings.HasPrefix(text, "/"), strings.HasPrefix(text, "./"), strings.HasPrefix(text, "../"), strings.HasPrefix(text, "~/"):
		if clean := cleanPath("", text); !strings.ContainsAny(text, " \t\n@=?&;,") {
			return clean
		}
	}
	return Hidden
}

func boolean(text string) bool {
	switch strings.ToLower(text) {
	case "true", "false", "yes", "no", "on", "off", "null", "none":
		return true
	}
	return false
}

var (
	address = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s"'<>|\x60]+`)
	query   = regexp.MustCompile(`\?[A-Za-z0-9_.\[\]-]{1,64}=[^\s"'<>]+`)
	login   = regexp.MustCompile(`(?i)\b(bearer|basic)\s+([A-Za-z0-9._~+/=-]{8,})`)
	header  = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key)(["']?\s*[=:]\s*["']?)([^\s"',;}]{4,})`)
	assign  = regexp.MustCompile(`(?i)\b([a-z0-9_-]{0,40}(?:api_?key|access_?key|token|secret|password|passwd|pwd))(["']\s*[=:]\s*["']?|=["']?)([^\s"',;}&]{4,})`)
)

// Text returns a text in which URLs are cleaned as by URL, and in which the values after the names
// of secrets, in the forms of headers and assignments, are replaced by Hidden.
func Text(s string) string {
	if strings.Contains(s, "://") {
		s = address.ReplaceAllStringFunc(s, func(at string) string {
			marks := ".,;:!?)}…"
			if !strings.Contains(at, "[") {
				marks += "]"
			}
			end := strings.TrimRight(at, marks)
			return URL(end) + at[len(end):]
		})
	}
	if strings.Contains(s, "?") {
		s = query.ReplaceAllString(s, "?"+left)
	}
	s = login.ReplaceAllStringFunc(s, func(at string) string {
		m := login.FindStringSubmatch(at)
		if !hasDigit.MatchString(m[2]) && len(m[2]) < runLength {
			return at // a sentence about logins
		}
		return m[1] + " " + Hidden
	})
	return hideAfter(assign, hideAfter(header, s))
}

// hideAfter hides what stands behind names; the way of a login is no secret.
func hideAfter(form *regexp.Regexp, s string) string {
	return form.ReplaceAllStringFunc(s, func(at string) string {
		m := form.FindStringSubmatch(at)
		if strings.EqualFold(m[3], "bearer") || strings.EqualFold(m[3], "basic") {
			return at
		}
		return m[1] + m[2] + Hidden
	})
}
