package openapi_test

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/server/openapi"
)

type base struct {
	ID string `json:"id"`
}

type tree struct {
	base

	Below  []*tree        `json:"below,omitempty"`
	Score  *float64       `json:"score"`
	Last   *time.Time     `json:"last,omitempty"`
	List   []string       `json:"list"`
	Counts map[string]int `json:"counts,omitempty"`
	At     netip.Addr     `json:"at"`
	Raw    json.RawMessage
	Inner  struct{ N uint } `json:"inner"`
	Hidden int              `json:"-"`
	own    int
}

func TestASchemaIsThatOfWhatIsWritten(t *testing.T) {
	t.Parallel()
	_ = tree{own: 1}.own
	text, err := openapi.Document(openapi.Info{Title: "t", Version: "v", Refusal: openapi.Object{{Name: "error", Of: ""}}}, []openapi.Route{{
		Method: http.MethodPost, Path: "/a/{id}", Summary: "Does it.", Tag: "x", Answer: tree{}, Open: true,
		Query: []openapi.Param{{Name: "n", Of: openapi.Words{"a", "b"}, Doc: "Which."}},
		Body:  openapi.OneOf{openapi.Strict{{Name: "list", Of: []openapi.Strict{{{Name: "v?", Of: 0.0, Doc: "It."}}}}}, openapi.Any{}},
	}})
	require.NoError(t, err)
	assert.JSONEq(t, `{
 "openapi": "3.1.0", "info": {"title": "t", "version": "v", "description": ""}, "tags": [{"name": "x"}], "security": [{"token": []}, {}],
 "paths": {"/a/{id}": {"post": {
  "summary": "Does it.", "operationId": "post_a_id", "tags": ["x"], "security": [],
  "parameters": [
   {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}},
   {"name": "n", "in": "query", "description": "Which.", "schema": {"type": "string", "enum": ["a", "b"]}}],
  "requestBody": {"required": true, "content": {"application/json": {"schema": {"oneOf": [
   {"type": "object", "required": ["list"], "additionalProperties": false, "properties": {"list": {"type": "array", "items":
    {"type": "object", "required": [], "additionalProperties": false, "properties": {"v": {"type": "number", "description": "It."}}}}}},
   {}]}}}},
  "responses": {
   "200": {"description": "Done.", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/openapi_test.tree"}}}},
   "default": {"$ref": "#/components/responses/Refused"}}}}},
 "components": {
  "responses": {"Refused": {"description": "Refused: what was wrong.", "content": {"application/json": {"schema":
   {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}}}}},
  "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "A token of server.token_file; a server without it asks for none."}},
  "schemas": {"openapi_test.tree": {
   "type": "object", "required": ["id", "score", "list", "at", "Raw", "inner"], "properties": {
    "id": {"type": "string"}, "score": {"type": ["number", "null"]}, "last": {"type": "string", "format": "date-time"},
    "below": {"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/openapi_test.tree"}, {"type": "null"}]}},
    "list": {"type": ["array", "null"], "items": {"type": "string"}}, "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    "at": {"type": "string"}, "Raw": {}, "inner": {"type": "object", "required": ["N"], "properties": {"N": {"type": "integer", "minimum": 0}}}}}}}
}`, string(text))
}
