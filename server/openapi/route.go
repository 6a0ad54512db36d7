package openapi

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Route describes one method and path of the server.
type Route struct {
	Method string
	// Path contains parameters as {name}.
	Path string
	// Summary is one sentence; Tag is the subject of the route.
	Summary, Tag string
	Query        []Param
	// Body and Answer are values of the types of the bodies, or an Object or a OneOf; nil: there is no JSON
	// body. Type and AnswerTypes are media types other than JSON, whose content is not described.
	Body        any
	Type        string
	Answer      any
	AnswerTypes []string
	// Also are further statuses with the same body as the success, such as the 503 of /readyz.
	Also []int
	// Open means that the route needs no token.
	Open bool
}

// Param is a parameter of the query. Of is a value of its type.
type Param struct {
	Name string
	Of   any
	Doc  string
}

// Info describes the document as a whole.
type Info struct {
	Title, Version, Description string
	// Refusal is the body of an answer without success.
	Refusal any
}

// node is an object of JSON.
type node = map[string]any

// mediaJSON is the media type of what is described by a Go value.
const mediaJSON = "application/json"

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// Document returns the OpenAPI document of the routes, as JSON.
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
