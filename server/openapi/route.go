package openapi

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Route is one way to ask the server something.
type Route struct {
	Method string
	// Path has parameters as {name}.
	Path string
	// Summary is one sentence; Tag is what the route is about.
	Summary, Tag string
	Query        []Param
	// Body and Answer are values of the types of the bodies, Object or OneOf among them; nil: there is none. Type and AnswerTypes are
	// their media types where that is not JSON; of the others the form is not described.
	Body        any
	Type        string
	Answer      any
	AnswerTypes []string
	// Also are statuses beside the first one that have the same form, such as a 503 of /readyz.
	Also []int
	// Open says that the route needs no token.
	Open bool
}

// Param is a parameter of the query, with a value of its type.
type Param struct {
	Name string
	Of   any
	Doc  string
}

// Info is about the document as a whole.
type Info struct {
	Title, Version, Description string
	// Refusal is the form of an answer other than with success.
	Refusal any
}

// node is an object of JSON.
type node = map[string]any

// mediaJSON is the media type of what is described by a Go value.
const mediaJSON = "application/json"

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// Document is the document of the routes.
func Document(info Info, routes []Route) ([]byte, error) {
	s := schemas{}
	paths := node{}
	var tags []string
	for _, r := range routes {
		at, ok := paths[r.Path].(node)
		if !ok {
			at = node{}
			paths[r.Path] = at
		}
		at[strings.ToLower(r.Method)] = s.operation(r)
		if !slices.Contains(tags, r.Tag) {
			tags = append(tags, r.Tag)
		}
	}
	named := make([]node, len(tags))
	for i, t := range tags {
		named[i] = node{"name": t}
	}
	refusal := node{"description": "Refused: what was wrong.", "content": node{mediaJSON: node{"schema": s.of(info.Refusal)}}}
	return json.Marshal(node{
		"openapi": "3.1.0",
		"info":    node{"title": info.Title, "version": info.Version, "description": info.Description},
		"tags":    named, "paths": paths,
		"security": []node{{"token": []string{}}, {}},
		"components": node{
			"schemas": s, "responses": node{"Refused": refusal},
			"securitySchemes": node{"token": node{"type": "http", "scheme": "bearer", "description": "A token of server.token_file; a server without it asks for none."}},
		},
	})
}

func (s schemas) operation(r Route) node {
	op := node{"summary": r.Summary, "operationId": operationID(r), "tags": []string{r.Tag}}
	var params []node
	for _, m := range parameter.FindAllStringSubmatch(r.Path, -1) {
		params = append(params, node{"name": m[1], "in": "path", "required": true, "schema": node{"type": "string"}})
	}
	for _, p := range r.Query {
		params = append(params, node{"name": p.Name, "in": "query", "description": p.Doc, "schema": s.of(p.Of)})
	}
	if params != nil {
		op["parameters"] = params
	}
	if r.Body != nil || r.Type != "" {
		op["requestBody"] = node{"required": true, "content": s.content(r.Body, r.Type)}
	}
	answer := node{"description": "Done."}
	if r.Answer != nil || len(r.AnswerTypes) > 0 {
		answer["content"] = s.content(r.Answer, r.AnswerTypes...)
	}
	answers := node{"200": answer, "default": node{"$ref": "#/components/responses/Refused"}}
	for _, status := range r.Also {
		answers[strconv.Itoa(status)] = answer
	}
	op["responses"] = answers
	if r.Open {
		op["security"] = []node{}
	}
	return op
}

func (s schemas) content(of any, types ...string) node {
	out := node{}
	if of != nil {
		out[mediaJSON] = node{"schema": s.of(of)}
	}
	for _, t := range types {
		if t != "" {
			out[t] = node{}
		}
	}
	return out
}

// operationID names an operation for programs that make clients of the document.
func operationID(r Route) string {
	words := strings.FieldsFunc(r.Path, func(c rune) bool { return c == '/' || c == '{' || c == '}' || c == '.' || c == '-' })
	return strings.Join(append([]string{strings.ToLower(r.Method)}, words...), "_")
}
