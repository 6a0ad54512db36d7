package server

import (
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/failures"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/server/openapi"
	"github.com/rewardloop/rewardloop/store"
	"github.com/rewardloop/rewardloop/wire"
)

// routeOpenAPI is where the document of the routes is.
const routeOpenAPI = "/openapi.json"

// What routes are about.
const (
	tagSamples   = "samples"
	tagState     = "state"
	tagOperation = "operation"
	tagRouter    = "reward router"
)

// described says of each route of our own what it is for and what its bodies look like, for GET /openapi.json. A route
// without a line here fails a test, and so does a line without a route. The protocols of other systems and
// the reward router are described by their own tables (describedByTables).
func described() []openapi.Route {
	split := openapi.Param{Name: "split", Of: openapi.Words{"train", "val"}, Doc: "Default train."}
	return []openapi.Route{
		read(tagState, "/v1/pending", "Samples without a result, the oldest first, and the rewards that have problems.", openapi.Object{
			{Name: "total", Of: 0},
			{Name: "held_bytes", Of: int64(0)},
			{Name: "granted_bytes", Of: int64(0)},
			{Name: "samples", Of: []loop.PendingSample{}},
			{Name: "rewards", Of: []loop.Progress{}},
		}, openapi.Param{Name: "limit", Of: 0, Doc: "Maximum number of samples, 0 to 10,000; default 100."}),
		read(tagState, "/v1/failures", "Recent failures with their reasons, similar failures as one entry, the newest first.",
			openapi.Object{{Name: "total", Of: uint64(0)}, {Name: "failures", Of: []failures.Failure{}}},
			openapi.Param{Name: "reward", Of: "", Doc: "Those of one reward."}),
		read(tagState, "/v1/workers", "Connected workers, and the workers that get no samples of a reward.",
			openapi.Object{{Name: "workers", Of: []wire.WorkerInfo{}}, {Name: "breakers", Of: []loop.BreakerInfo{}}}),
		read(tagState, "/v1/runs", "Every run with its latest steps and prompt groups.", openapi.Object{{Name: "runs", Of: []loop.RunState{}}},
			openapi.Param{Name: "groups", Of: 0, Doc: "Maximum number of prompt groups of a run, 0 to 10,000; default 20."}),
		read(tagState, "/v1/runs/{run}/steps/{step}", "State of a step, and the samples that it waits for.", loop.StepDetail{}, split),
		withTypes(read(tagState, "/v1/runs/{run}/steps/{step}/rewards", "Rewards of a step that are complete, or one chunk of these rewards.", wire.Rewards{}, split,
			openapi.Param{Name: "wait", Of: 0.0, Doc: "Seconds to wait for the end of the step, or for the chunk, 0 to 60; default 0."},
			openapi.Param{Name: "chunk", Of: 0, Doc: "Which chunk, from 0."},
			openapi.Param{Name: "n", Of: 0, Doc: "Prompt groups in the chunk; default 0: all remaining groups."},
			openapi.Param{Name: "order", Of: openapi.Words{wire.ByCompletion, wire.ByIndex}, Doc: "Order of chunks."}), "application/octet-stream"),
		read(tagState, "/v1/runs/{run}/steps/{step}/trace", "Spans of a step, in the form that rewardloop trace reads.", trace.Trace{}, split),
		read(tagState, "/v1/results", "Kept results with their samples.", openapi.Object{{Name: "total", Of: 0}, {Name: "results", Of: []*store.Row{}}},
			append(rowParams(),
				openapi.Param{Name: "sort", Of: openapi.Words{"newest", "oldest", "best", "worst", "slowest", "disagreeing"}, Doc: "Order of the results; default newest."},
				openapi.Param{Name: "limit", Of: 0, Doc: "Maximum number of rows, 0 to 1,000; default 50."},
				openapi.Param{Name: "offset", Of: 0, Doc: "Number of rows to skip."})...),
		read(tagState, "/v1/results/{key}", "One kept result in full.", store.Row{}),
		other(tagState, "/v1/results/{key}/media/{n}", "Thumbnail of a kept picture or video, or the bytes of the file.", "image/jpeg",
			openapi.Param{Name: "full", Of: openapi.Words{"1"}, Doc: "1: the bytes that the trainer sent for the picture or video."}, openapi.Param{Name: "frame", Of: 0, Doc: "Number of the frame of a video, from 0."}),
		read(tagState, "/v1/history", "Steps of a run in the store.", openapi.Object{{Name: "steps", Of: []*store.StepHistory{}}},
			openapi.Param{Name: "run", Of: "", Doc: "Name of the run."}, split),
		read(tagState, "/v1/history/runs", "Runs with results in the store.", openapi.Object{{Name: "runs", Of: []*store.RunHistory{}}}),
		read(tagState, "/v1/runs/{run}/steps/{step}/groups", "Prompt groups of a step in the store.", openapi.Object{{Name: "groups", Of: []*store.Group{}}}, split,
			openapi.Param{Name: "sort", Of: openapi.Words{"step", "zero_std", "std"}, Doc: "Order of the groups; default step: the order of arrival."}, openapi.Param{Name: "limit", Of: 0, Doc: "Maximum number of groups; default 200."}),
		read(tagState, "/v1/runs/{run}/steps/{step}/histogram", "Histograms of the values of a step, by column.", openapi.Object{{Name: "columns", Of: map[string]*store.Histogram{}}}, split),
		read(tagState, "/v1/hints", "Unusual patterns in the newest results of a run, such as a reward that correlates with length.", openapi.Object{{Name: "hints", Of: []store.Hint{}}}, openapi.Param{Name: "run", Of: "", Doc: "Name of the run."}, split),
		read(tagState, "/v1/overview", "Summary of the server's state.", Overview{}),
		other(tagState, "/v1/events", "Server-Sent Events: each change of the overview and the results.", "text/event-stream"),
		read(tagState, "/v1/scorers", "The rewards that a sample may name.", openapi.Object{{Name: "rewards", Of: []Profile{}}}),
		read(tagState, routeEngines, "Engine servers that this process has started.", openapi.Object{{Name: "servers", Of: []EngineServer{}}}),
		withTypes(read(tagState, routeRoot, "List of the server's paths; for a browser the status page.", openapi.Object{
			{Name: "service", Of: ""},
			{Name: "version", Of: ""},
			{Name: "stream", Of: ""},
			{Name: "score", Of: []string{}},
			{Name: "router", Of: []string{}},
			{Name: "state", Of: []string{}},
			{Name: "systems", Of: map[string]string{}},
			{Name: "page", Of: ""},
			{Name: "in_flight", Of: 0},
		}), "text/html"),
		open(other(tagOperation, "/assets/{name}", "A file of the status page.", "text/javascript")),
		read(tagOperation, routeOpenAPI, "This document.", openapi.Any{}),
		{Method: http.MethodPost, Path: "/v1/reload", Tag: tagOperation, Summary: "Reloads the configuration.", Answer: Reloaded{}},
		open(read(tagOperation, routeHealth, "200 while the process answers.", openapi.Object{{Name: "status", Of: ""}})),
		open(also(read(tagOperation, routeReady, "200 while the server accepts samples. With a token a refusal includes the reasons.", openapi.Object{
			{Name: "ready", Of: false}, {Name: "reasons?", Of: []string{}}, {Name: "rewards?", Of: []loop.Progress{}},
		}, openapi.Param{Name: "reward", Of: "", Doc: "Name of a reward: 200 only while the server accepts samples of this reward."}), http.StatusServiceUnavailable)),
		other(tagOperation, "/metrics", "Metrics in Prometheus' text format.", "text/plain"),
		other(tagOperation, routeProfiles, "List of Go's runtime profiles.", "text/html"),
		other(tagOperation, routeProfiles+"{name}", "One of Go's runtime profiles of this process.", "application/octet-stream",
			openapi.Param{Name: "seconds", Of: 0, Doc: "Duration of the profile in seconds, 1 to 60."}),
		also(other(tagSamples, routeStream, "The stream, a websocket of rewardloop.v1 (docs/wire.md).", ""), http.StatusSwitchingProtocols),
		also(open(other(tagOperation, routeClaim, "A websocket on which workers of other processes claim samples (docs/claim.md).", "")), http.StatusSwitchingProtocols),
	}
}

// rowParams select kept results.
func rowParams() []openapi.Param {
	return []openapi.Param{
		{Name: "run", Of: "", Doc: "Only results of this run."},
		{Name: "epoch", Of: "", Doc: "Epoch of the run; default: the newest epoch of each step."},
		{Name: "split", Of: openapi.Words{"train", "val"}, Doc: "Only results of this split."},
		{Name: "step", Of: 0, Doc: "Only results of this step."},
		{Name: "reward", Of: "", Doc: "Only results of this reward."},
		{Name: "uid", Of: "", Doc: "Only results of this prompt group."},
		{Name: "outcome", Of: "", Doc: "Only results with this outcome."},
		{Name: "failed", Of: openapi.Words{"1"}, Doc: "Only results without a reward."},
		{Name: "q", Of: "", Doc: "Only results whose prompt, response or id contains this text."},
	}
}

// read is a route that is asked with GET and answers JSON.
func read(tag, path, summary string, answer any, query ...openapi.Param) openapi.Route {
	return openapi.Route{Method: http.MethodGet, Path: path, Tag: tag, Summary: summary, Answer: answer, Query: query}
}

// other is a route that is asked with GET and answers something else than JSON.
func other(tag, path, summary, kind string, query ...openapi.Param) openapi.Route {
	return withTypes(read(tag, path, summary, nil, query...), kind)
}

func withTypes(r openapi.Route, kinds ...string) openapi.Route {
	r.AnswerTypes = kinds
	return r
}

func also(r openapi.Route, statuses ...int) openapi.Route {
	r.Also = statuses
	return r
}

func open(r openapi.Route) openapi.Route {
	r.Open = true
	return r
}

// describedByTables are the routes of protocols and of the reward router.
func (s *Server) describedByTables() []openapi.Route {
	var list []openapi.Route
	for _, p := range s.protocols() {
		for _, path := range p.Paths {
			r := openapi.Route{Method: p.Method, Path: path, Tag: tagSamples, Summary: "Scores samples of clients of " + p.System + ".", Body: openapi.Any{}, Answer: openapi.Any{}}
			switch {
			case p.Tell != nil:
				r.Summary, r.Body = "Describes this server to clients of "+p.System+".", nil
			case path == ownPrefix+"/score":
				r.Summary, r.Body, r.Type, r.Answer = "Scores one or several samples.", scoreBody(), "multipart/form-data", openapi.Object{{Name: "results", Of: []wire.Result{}}}
			case p.Form == compat.Pickle:
				r.Body, r.Type, r.Answer, r.AnswerTypes = nil, binaryType, nil, []string{binaryType}
			}
			if p.Query {
				r.Query = []openapi.Param{{Name: "reward", Of: "", Doc: "Name of the reward that scores the samples; default: the reward of the path, or the default reward."}}
			}
			list = append(list, r)
		}
	}
	for _, p := range routerPaths() {
		r := openapi.Route{Method: p.method, Path: p.path, Tag: tagRouter, Summary: "Forwards a request to one of this server's engines, in the engine's own protocol.", Answer: openapi.Any{}}
		if p.method == http.MethodPost {
			r.Body = map[string]openapi.Any{}
		}
		list = append(list, r)
	}
	return list
}

// scoreBody is what readScore reads.
func scoreBody() any {
	picture := openapi.Strict{
		{Name: "b64?", Of: "", Doc: "The bytes in base64."},
		{Name: "file?", Of: "", Doc: "Name of the part of a multipart body that has the bytes."},
		{Name: "encoding?", Of: openapi.Words{"jpeg", "png", "webp", "raw"}, Doc: "Encoding of the bytes; default: detected from the bytes."},
		{Name: "layout?", Of: "", Doc: "Layout of a raw picture: HWC or CHW."},
		{Name: "dtype?", Of: "", Doc: "Data type of a raw picture: U8."},
		{Name: "shape?", Of: []int{}, Doc: "Shape of a raw picture, in the order of layout."},
	}
	file := openapi.Strict{
		{Name: "b64?", Of: "", Doc: "The file's bytes in base64."}, {Name: "file?", Of: "", Doc: "Name of the part of a multipart body that has the file's bytes."},
	}
	video := append(openapi.Strict{
		{Name: "frames?", Of: []openapi.Strict{picture}, Doc: "Frames of the video as pictures, instead of an MP4, WebM or GIF file."}, {Name: "fps?", Of: 0.0},
	}, file...)
	sample := openapi.Strict{
		{Name: "id?", Of: "", Doc: "Id of the sample; default: the server creates an id."},
		{Name: "step?", Of: int64(0), Doc: "The trainer's global step."},
		{Name: "split?", Of: openapi.Words{"train", "val"}},
		{Name: "index?", Of: uint32(0), Doc: "Row in the trainer's batch."},
		{Name: "uid?", Of: "", Doc: "Prompt group of the sample; all members of a group are in one request."},
		{Name: "group_size?", Of: uint32(0), Doc: "Number of members of the group."},
		{Name: "reward?", Of: "", Doc: "Name of the reward that scores the sample; default: the default reward."},
		{Name: "data_source?", Of: ""},
		{Name: "prompt?", Of: ""},
		{Name: "response?", Of: ""},
		{Name: "ground_truth?", Of: openapi.Any{}},
		{Name: "extra_info?", Of: map[string]openapi.Any{}},
		{Name: "deadline_ms?", Of: uint32(0), Doc: "Time limit for the sample's result, in milliseconds."},
		{Name: "traceparent?", Of: "", Doc: "W3C trace context of the sender."},
		{Name: "images?", Of: []openapi.Strict{picture}},
		{Name: "videos?", Of: []openapi.Strict{video}},
		{Name: "audios?", Of: []openapi.Strict{file}},
	}
	return openapi.OneOf{sample, openapi.Strict{
		{Name: "samples", Of: []openapi.Strict{sample}},
		{Name: "reward?", Of: "", Doc: "Name of the reward for samples without reward."},
		{Name: "on_sample_failure?", Of: "", Doc: "Replacement for a missing score: none, group_mean, zero or value:<x>."},
		{Name: "deadline_ms?", Of: uint32(0), Doc: "Time limit in milliseconds for samples without deadline_ms."},
	}}
}

// document answers GET /openapi.json.
func (s *Server) document() gin.HandlerFunc {
	body := sync.OnceValues(func() ([]byte, error) {
		var list []openapi.Route
		for _, r := range append(described(), s.describedByTables()...) {
			if r.Path != routeClaim || s.claims != nil {
				list = append(list, r)
			}
		}
		return openapi.Document(openapi.Info{
			Title: "rewardloop", Version: s.version, Description: "A reward server for RL training. Samples come over the stream (docs/wire.md) or over HTTP.",
			Refusal: openapi.Object{{Name: "error", Of: ""}, {Name: "code", Of: ""}, {Name: "failed?", Of: new(openapi.Any), Doc: "Samples without a score, by their index in the request."}},
		}, list)
	})
	return func(c *gin.Context) {
		text, err := body()
		if err != nil {
			s.refuse(c, compat.Faultf("internal", "the document cannot be written: %v", err))
			return
		}
		s.write(c, compat.Reply{Status: http.StatusOK, ContentType: "application/json", Body: text})
	}
}
