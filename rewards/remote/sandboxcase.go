package remote

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// testCase is one run of the code.
type testCase struct {
	stdin    pickle.Value // a string, or nil for none
	expected *string      // nil: whatever it prints
	assert   string       // code that follows the response's
	function string       // the function to call with the input's lines; empty: the program reads stdin
}

// The codes that verl gives a case.
const (
	codePassed  = 1
	codeWrong   = 0
	codeUnknown = -1 // the server could not judge it
	codeRuntime = -2
	codeTimeout = -3
	codeCompile = -4
)

// caseResult is what became of a case.
type caseResult struct {
	code           int
	status         string
	stdout, stderr string
	seconds        any // float64, or nil where the server does not say
}

// Bounds of what details hold: cases, and bytes of one output.
const (
	maxDetailCases = 32
	maxOutput      = 512
)

// testCases reads {"inputs": […], "outputs": […], "fn_name": …}, or {"assert_case":
// […]} with or without the two, as an object or as text that holds one.
func (s *sandbox) testCases(sample *rewards.Sample) ([]testCase, error) {
	d, err := objectOf(s.cases, sample)
	if err != nil {
		return nil, err
	}
	lists := map[string][]pickle.Value{}
	n := -1
	for _, key := range []string{"inputs", "outputs", "assert_case"} {
		v, ok := d.Get(key)
		if !ok || v == nil {
			continue
		}
		l, ok := items(v)
		if !ok {
			return nil, fmt.Errorf("%w: %s.%s is %s, want a list", rewards.BadInput, s.cases, key, typeName(v))
		}
		if n >= 0 && len(l) != n {
			return nil, fmt.Errorf("%w: %s.%s has %d elements, want %d", rewards.BadInput, s.cases, key, len(l), n)
		}
		lists[key], n = l, len(l)
	}
	_, asserted := lists["assert_case"]
	_, fed := lists["inputs"]
	_, expected := lists["outputs"]
	if !asserted && (!fed || !expected) {
		return nil, fmt.Errorf("%w: %s has neither inputs and outputs nor assert_case; the keys are %s", rewards.BadInput, s.cases, names(d))
	}
	if n == 0 || n > s.options.MaxCases {
		return nil, fmt.Errorf("%w: %s has %d cases, want 1 to max_cases = %d", rewards.BadInput, s.cases, n, s.options.MaxCases)
	}
	function, err := functionName(d)
	if err != nil {
		return nil, err
	}
	if s.options.Continuous {
		n = min(n, firstCases)
	}
	cs := make([]testCase, n)
	for i := range cs {
		if cs[i], err = s.testCase(lists, i); err != nil {
			return nil, fmt.Errorf("%s, case %d: %w", s.cases, i, err)
		}
		cs[i].function = function
	}
	return cs, nil
}

// functionName reads fn_name, which goes into a program: it must be a name.
func functionName(d *pickle.Dict) (string, error) {
	v, _ := d.Get("fn_name")
	if v == nil {
		return "", nil
	}
	name, ok := v.(string)
	letter := func(i int, r rune) bool { return r == '_' || unicode.IsLetter(r) || i > 0 && unicode.IsDigit(r) }
	for i, r := range name {
		ok = ok && letter(i, r)
	}
	if !ok || len(name) > 256 {
		return "", fmt.Errorf("%w: fn_name is not the name of a function", rewards.BadInput)
	}
	return name, nil
}

func (s *sandbox) testCase(lists map[string][]pickle.Value, i int) (testCase, error) {
	c := testCase{stdin: ""} // what verl gives a case that is an assertion alone
	size := 0
	if l := lists["inputs"]; l != nil {
		text, err := asText(l[i])
		if err != nil {
			return c, fmt.Errorf("input: %w", err)
		}
		c.stdin = nil
		if text != nil {
			c.stdin = *text
			size += len(*text)
		}
	}
	if l := lists["outputs"]; l != nil {
		text, err := asText(l[i])
		if err != nil {
			return c, fmt.Errorf("output: %w", err)
		}
		c.expected = text
		if text != nil {
			size += len(*text)
		}
	}
	if l := lists["assert_case"]; l != nil {
		text, ok := l[i].(string)
		if !ok {
			return c, fmt.Errorf("%w: assert_case is %s, want text", rewards.BadInput, typeName(l[i]))
		}
		c.assert = text
		size += len(text)
	}
	if size > s.options.MaxCaseBytes {
		return c, fmt.Errorf("%w: %d bytes, want at most max_case_bytes = %d", rewards.BadInput, size, s.options.MaxCaseBytes)
	}
	return c, nil
}

// asText is Python's str() of what test cases hold: text, integers, decimals and
// bools; nil is None. What Python would write differently than JSON is refused.
func asText(v pickle.Value) (*string, error) {
	var text string
	switch v := v.(type) {
	case nil:
		return nil, nil // None is a value here
	case string:
		text = v
	case bool:
		text = map[bool]string{true: "True", false: "False"}[v]
	case json.Number:
		text = v.String()
		if strings.ContainsAny(text, "eE") {
			return nil, fmt.Errorf("%w: the number %s has an exponent; write it as text", rewards.BadInput, service.Clip(text, 40))
		}
	default:
		return nil, fmt.Errorf("%w: %s, want text", rewards.BadInput, typeName(v))
	}
	return &text, nil
}

// judge reads the server's answer on a case.
func judge(body []byte, c testCase) (caseResult, error) {
	v, err := decodeJSON(body)
	if err != nil {
		return caseResult{}, err
	}
	d, ok := v.(*pickle.Dict)
	if !ok {
		return caseResult{}, fmt.Errorf("%w: the answer is %s, want an object", rewards.InvalidScore, typeName(v))
	}
	compile, run := commandOf(d, "compile_result"), commandOf(d, "run_result")
	r := caseResult{stdout: service.Clip(run.stdout, maxOutput), stderr: service.Clip(run.stderr, maxOutput), seconds: run.seconds}
	status, _ := d.Get("status")
	switch status {
	case "Success":
		r.code, r.status = codeUnknown, "unexpected_success_state"
		if run.status == "Finished" {
			r.code, r.status = codeWrong, "wrong_answer"
			if c.expected == nil || strings.TrimRight(run.stdout, "\n") == strings.TrimRight(*c.expected, "\n") {
				r.code, r.status = codePassed, "success"
			}
		}
	case "Failed":
		r.code, r.status = failedBecause(compile, run)
		if r.code == codeCompile {
			r.stderr, r.seconds = service.Clip(compile.stderr, maxOutput), compile.seconds
		}
	case "SandboxError":
		message, _ := d.Get("message")
		text, _ := message.(string)
		r.code, r.status, r.stderr = codeUnknown, "sandbox_error", service.Clip(text, maxOutput)
	default:
		return caseResult{}, fmt.Errorf("%w: the answer has no status of Success, Failed or SandboxError: %s", rewards.InvalidScore, service.Quote(body))
	}
	return r, nil
}

// failedBecause tells apart why a run failed, in verl's order: compiling first.
func failedBecause(compile, run command) (code int, status string) {
	switch {
	case compile.status == "TimeLimitExceeded":
		return codeCompile, "compile_timeout"
	case compile.failed():
		return codeCompile, "compile_error"
	case run.status == "TimeLimitExceeded":
		return codeTimeout, "timeout"
	case run.failed():
		return codeRuntime, "runtime_error"
	}
	return codeUnknown, "unknown_failure"
}

// command is the server's report of compiling or running.
type command struct {
	there          bool
	status         string
	stdout, stderr string
	returned       pickle.Value
	seconds        any
}

func commandOf(d *pickle.Dict, key string) command {
	v, _ := d.Get(key)
	c, ok := v.(*pickle.Dict)
	if !ok || len(c.Items) == 0 {
		return command{}
	}
	text := func(key string) string {
		v, _ := c.Get(key)
		t, _ := v.(string)
		return t
	}
	out := command{there: true, status: text("status"), stdout: text("stdout"), stderr: text("stderr")}
	out.returned, _ = c.Get("return_code")
	took, _ := c.Get("execution_time")
	if f, err := number(took); err == nil {
		out.seconds = f
	}
	return out
}

// failed reports an error, or an end with another code than 0.
func (c command) failed() bool {
	return c.there && (c.status == "Error" || c.status == "Finished" && c.returned != json.Number("0"))
}

// spreadCompileError gives the cases after the first that did not compile the same
// result, as verl does: their code is the same up to the assertion.
func spreadCompileError(results []caseResult) {
	found := false
	for i := range results {
		if found && results[i].code != codeCompile {
			results[i].code, results[i].status = codeCompile, "compile_error_skipped"
		}
		found = found || results[i].code == codeCompile
	}
}

// total is the share of the cases that passed. A status other than "" is that of
// all of them.
func total(results []caseResult, status string) rewards.Score {
	passed := 0
	first := "success"
	var details []map[string]any
	for i, r := range results {
		if status != "" {
			r.status = status
		}
		if r.code == codePassed {
			passed++
		} else if first == "success" {
			first = r.status
		}
		if i < maxDetailCases && status == "" {
			details = append(details, map[string]any{"case": i, "code": r.code, "status": r.status, "stdout": r.stdout, "stderr": r.stderr, "seconds": r.seconds})
		}
	}
	score := rewards.Score{
		Value: float64(passed) / float64(len(results)),
		Extra: map[string]any{"passed": int64(passed), "cases": int64(len(results)), "status": first},
	}
	if details != nil {
		score.Details = map[string]any{"cases": details}
	}
	return score
}

// callFunction makes a program that calls a function of the code with the lines of
// its input, each a JSON value, and prints what it returns: containers, None and
// bools as JSON, all else as str() writes it. The code finds the names of the
// modules that solutions use without importing them. Unlike verl's, the program
// ends with code 1 where the call fails, so that it reads as a runtime error.
func callFunction(code, function string) string {
	return strings.NewReplacer("@CODE@", code, "@NAME@", function).Replace(callTemplate)
}

// callTemplate takes the module names of verl's wrapper; star imports first, so that
// a later "import string" wins over what they bring.
const callTemplate = `from string import *
from re import *
from datetime import *
from collections import *
from heapq import *
from bisect import *
from copy import *
from math import *
from random import *
from statistics import *
from itertools import *
from functools import *
from operator import *
from io import *
from sys import *
from json import *
from builtins import *
from typing import *
import bisect, collections, copy, datetime, functools, heapq, io, itertools, json, math, operator, random, re, statistics, string, sys, traceback

@CODE@

if __name__ == "__main__":
    import json as _json, sys as _sys, traceback as _traceback
    try:
        _text = _sys.stdin.read()
        _values = [_json.loads(_line) for _line in _text.split("\n")] if _text.strip() else []
        _scope = globals()
        if "@NAME@" in _scope:
            _call = _scope["@NAME@"]
        else:
            _call = getattr(_scope["Solution"](), "@NAME@")
        _result = _call(*_values)
        if _result is None or isinstance(_result, (bool, dict, list, tuple)):
            print(_json.dumps(_result))
        else:
            print(str(_result))
    except Exception:
        _traceback.print_exc()
        _sys.exit(1)
`
