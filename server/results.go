package server

import (
	"bytes"
	"errors"
	"image"
	"image/jpeg"
	"net/http"
	"slices"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/store"
)

// This file answers for what is kept of results. Where nothing is kept, lists are empty.

// results are the routes of what is kept.
func (s *Server) results(r *gin.Engine) {
	r.GET("/v1/results", s.listResults)
	r.GET("/v1/results/:key", s.oneResult)
	r.GET("/v1/results/:key/media/:n", s.oneMedia)
	r.GET("/v1/history", s.history)
	r.GET("/v1/history/runs", s.historyRuns)
	r.GET("/v1/runs/:run/steps/:step/groups", s.stepGroups)
	r.GET("/v1/runs/:run/steps/:step/histogram", s.stepHistogram)
	r.GET("/v1/hints", s.hints)
	r.GET("/v1/overview", s.overview)
	r.GET("/v1/events", s.events)
}

// kept reads the store; nil: nothing is kept.
func (s *Server) kept() *store.Store {
	if s.store == nil {
		return nil
	}
	return s.store()
}

// selection reads the query's keys that select rows; it answers a bad one itself.
func (s *Server) selection(c *gin.Context) (q store.Query, ok bool) {
	text := func(name string) *string {
		if v, ok := c.GetQuery(name); ok {
			return &v
		}
		return nil
	}
	q.Run, q.Reward = text("run"), text("reward")
	q.UID, q.Outcome, q.Text = c.Query("uid"), c.Query("outcome"), c.Query("q")
	q.Failed = c.Query("failed") == "1"
	if q.Split = rewards.Split(c.Query("split")); q.Split != "" && q.Split != rewards.Train && q.Split != rewards.Val {
		s.refuse(c, compat.Faultf(rewards.Malformed, "split=%q: want train or val", strictjson.Clip(string(q.Split))))
		return q, false
	}
	if v, given := c.GetQuery("epoch"); given {
		n, err := strconv.ParseUint(v, 10, 63)
		if err != nil {
			s.refuse(c, compat.Faultf(rewards.Malformed, "epoch=%q: want a whole number", strictjson.Clip(v)))
			return q, false
		}
		q.Epoch = &n
	}
	if v, given := c.GetQuery("step"); given {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			s.refuse(c, compat.Faultf(rewards.Malformed, "step=%q: want a whole number", strictjson.Clip(v)))
			return q, false
		}
		q.Step = &n
	}
	return q, true
}

// listResults answers GET /v1/results?run=&epoch=&split=&step=&reward=&uid=&outcome=&failed=1&q=&sort=&limit=&offset=.
func (s *Server) listResults(c *gin.Context) {
	q, ok := s.selection(c)
	if !ok {
		return
	}
	const usual, most, far = 50, 1000, 1_000_000
	if q.Limit, ok = s.bounded(c, "limit", usual, most); !ok {
		return
	}
	if q.Offset, ok = s.bounded(c, "offset", 0, far); !ok {
		return
	}
	if q.Sort = store.Sort(c.DefaultQuery("sort", string(store.Newest))); !slices.Contains(store.Sorts(), q.Sort) {
		s.refuse(c, compat.Faultf(rewards.Malformed, "sort=%q: want one of %v", strictjson.Clip(string(q.Sort)), store.Sorts()))
		return
	}
	answer := map[string]any{"total": 0, "results": []*store.Row{}}
	if kept := s.kept(); kept != nil && q.Limit > 0 {
		rows, total, err := kept.Reader().Results(c.Request.Context(), q)
		if err != nil {
			s.notKept(c, err)
			return
		}
		answer["total"], answer["results"] = total, orEmpty(rows)
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, answer))
}

// notKept answers for what cannot be read.
func (s *Server) notKept(c *gin.Context, err error) {
	switch {
	case c.Request.Context().Err() != nil:
		c.Status(statusGone) // for log and metrics; nobody reads it
		c.Abort()
	case errors.Is(err, store.ErrNotFound):
		s.refuse(c, &compat.Fault{Status: http.StatusNotFound, Class: "not_found", Message: err.Error()})
	default:
		s.log.WarnContext(c.Request.Context(), "the store cannot be read", "error", err)
		s.refuse(c, compat.Faultf(rewards.Internal, "the store cannot be read: %v", err))
	}
}

// keyOf reads the row of the path and the store that has it; it answers a bad one itself.
func (s *Server) keyOf(c *gin.Context) (kept *store.Store, key int64, ok bool) {
	key, err := strconv.ParseInt(c.Param("key"), 10, 64)
	if err != nil {
		s.refuse(c, compat.Faultf(rewards.Malformed, "result %q: want the key of a row, a whole number", strictjson.Clip(c.Param("key"))))
		return nil, 0, false
	}
	if kept = s.kept(); kept == nil {
		s.refuse(c, &compat.Fault{Status: http.StatusNotFound, Class: "not_found", Message: "no results are kept: store.keep is off, or the store cannot be opened (see the server's log)"})
		return nil, 0, false
	}
	return kept, key, true
}

// oneResult answers GET /v1/results/{key}.
func (s *Server) oneResult(c *gin.Context) {
	kept, key, ok := s.keyOf(c)
	if !ok {
		return
	}
	row, err := kept.Reader().Result(c.Request.Context(), key)
	if err != nil {
		s.notKept(c, err)
		return
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, row))
}

// oneMedia answers GET /v1/results/{key}/media/{n}: a JPEG, of a video several frames side by side or with ?frame= one of them; with
// ?full=1 the bytes that the trainer sent.
func (s *Server) oneMedia(c *gin.Context) {
	kept, key, ok := s.keyOf(c)
	if !ok {
		return
	}
	n, err := strconv.Atoi(c.Param("n"))
	if err != nil || n < 0 {
		s.refuse(c, compat.Faultf(rewards.Malformed, "media %q: want a number from 0", strictjson.Clip(c.Param("n"))))
		return
	}
	frame, ok := s.bounded(c, "frame", -1, 1<<20)
	if !ok {
		return
	}
	var data []byte
	kind := "image/jpeg"
	if c.Query("full") == "1" {
		var sample *rewards.Sample
		if _, sample, err = kept.Reader().Kept(c.Request.Context(), key); err == nil {
			data, kind, err = wholeMedia(sample, n, frame)
		}
	} else if data, err = kept.Reader().Thumbnail(c.Request.Context(), key, n); err == nil && frame >= 0 {
		var row *store.Row
		if row, err = kept.Reader().Result(c.Request.Context(), key); err == nil {
			data, err = frameOfStrip(data, row.Media[n], frame)
		}
	}
	if err != nil {
		s.notKept(c, err)
		return
	}
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, max-age=3600")
	if kind == binaryType {
		h.Set("Content-Disposition", "attachment")
	}
	s.write(c, compat.Reply{Status: http.StatusOK, ContentType: kind, Body: data})
}

// wholeMedia are the bytes of a media as the trainer sent them, or those of one of its frames.
func wholeMedia(sample *rewards.Sample, n, frame int) (data []byte, kind string, err error) {
	if n >= len(sample.Media) {
		return nil, "", store.ErrNotFound
	}
	m := sample.Media[n]
	switch m.Encoding {
	case rewards.JPEG, rewards.PNG, rewards.WebP:
		return m.Data, "image/" + string(m.Encoding), nil
	case rewards.Frames:
		if frame = max(frame, 0); frame >= len(m.Frames) {
			return nil, "", store.ErrNotFound
		}
		return m.Frames[frame], binaryType, nil
	case rewards.Raw:
	}
	return m.Data, binaryType, nil
}

// frameOfStrip cuts one frame out of a video's thumbnail.
func frameOfStrip(strip []byte, m store.MediaRow, frame int) ([]byte, error) {
	img, err := jpeg.Decode(bytes.NewReader(strip))
	if err != nil {
		return nil, err
	}
	shown := min(m.Frames, store.StripFrames)
	part, cut := img.Bounds(), false
	if shown > 1 {
		part.Max.X, cut = part.Dx()/shown, true
		part = part.Add(image.Pt(part.Dx()*frame, 0))
	}
	can, ok := img.(interface {
		SubImage(r image.Rectangle) image.Image
	})
	switch {
	case frame >= shown || !ok:
		return nil, store.ErrNotFound
	case !cut:
		return strip, nil
	}
	var out bytes.Buffer
	err = jpeg.Encode(&out, can.SubImage(part), nil)
	return out.Bytes(), err
}

// history answers GET /v1/history?run=&split=train: the steps of a run.
func (s *Server) history(c *gin.Context) {
	split := rewards.Split(c.DefaultQuery("split", string(rewards.Train)))
	steps := []*store.StepHistory{}
	if kept := s.kept(); kept != nil {
		var err error
		if steps, err = kept.Reader().History(c.Request.Context(), c.Query("run"), split); err != nil {
			s.notKept(c, err)
			return
		}
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"steps": steps}))
}

// historyRuns answers GET /v1/history/runs: the runs that have rows.
func (s *Server) historyRuns(c *gin.Context) {
	runs := []*store.RunHistory{}
	if kept := s.kept(); kept != nil {
		var err error
		if runs, err = kept.Reader().Runs(c.Request.Context()); err != nil {
			s.notKept(c, err)
			return
		}
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"runs": runs}))
}

// stepQuery selects the rows of the step of the path; it answers a bad one itself.
func (s *Server) stepQuery(c *gin.Context) (q store.Query, ok bool) {
	if q, ok = s.selection(c); !ok {
		return q, false
	}
	split, step, ok := s.stepOf(c)
	run := c.Param("run")
	q.Run, q.Split, q.Step = &run, split, &step
	return q, ok
}

// stepGroups answers GET /v1/runs/{run}/steps/{step}/groups?split=&epoch=&sort=step|zero_std|std&limit=200.
func (s *Server) stepGroups(c *gin.Context) {
	q, ok := s.stepQuery(c)
	if !ok {
		return
	}
	limit, ok := s.bounded(c, "limit", 200, 10_000)
	if !ok {
		return
	}
	groups := []*store.Group{}
	if kept := s.kept(); kept != nil {
		var err error
		if groups, err = kept.Reader().Groups(c.Request.Context(), q); err != nil {
			s.notKept(c, err)
			return
		}
	}
	switch sort := c.DefaultQuery("sort", "step"); sort {
	case "step":
	case "zero_std":
		slices.SortStableFunc(groups, func(a, b *store.Group) int { return compareBool(b.ZeroStd, a.ZeroStd) })
	case "std":
		slices.SortStableFunc(groups, func(a, b *store.Group) int {
			switch {
			case a.Std == nil || b.Std == nil:
				return compareBool(a.Std == nil, b.Std == nil)
			case *a.Std < *b.Std:
				return 1
			case *a.Std > *b.Std:
				return -1
			}
			return 0
		})
	default:
		s.refuse(c, compat.Faultf(rewards.Malformed, "sort=%q: want step, zero_std or std", strictjson.Clip(sort)))
		return
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"groups": groups[:min(limit, len(groups))]}))
}

// stepHistogram answers GET /v1/runs/{run}/steps/{step}/histogram?split=&epoch=.
func (s *Server) stepHistogram(c *gin.Context) {
	q, ok := s.stepQuery(c)
	if !ok {
		return
	}
	columns := map[string]*store.Histogram{}
	if kept := s.kept(); kept != nil {
		var err error
		if columns, err = kept.Reader().Histograms(c.Request.Context(), q); err != nil {
			s.notKept(c, err)
			return
		}
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"columns": columns}))
}

// hints answers GET /v1/hints?run=&split=train.
func (s *Server) hints(c *gin.Context) {
	hints := []store.Hint{}
	if kept := s.kept(); kept != nil {
		var err error
		if hints, err = kept.Reader().Hints(c.Request.Context(), c.Query("run"), rewards.Split(c.DefaultQuery("split", string(rewards.Train)))); err != nil {
			s.notKept(c, err)
			return
		}
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, map[string]any{"hints": hints}))
}
