// What the server says. Numbers that are absent are null; every string may be hostile.

export type Num = number | null | undefined;

export interface StatusLine { level: string; text: string; link?: string }
export interface OverviewRun {
  run: string; step: number; split: string; samples: number; expected: Num; mean: Num; std: Num;
  exposed_s: Num; exposed_share: Num; failed_share: Num; groups: number; zero_std_groups: number;
}
export interface StoreState { on: boolean; rows: number; bytes: number; limit_bytes: number; dropped: number; error: string }
export interface Overview {
  now: string; version: string; ready: boolean; reasons: string[]; status: StatusLine[];
  in_flight: number; waiting: number; running: number; slots: number; busy: number; samples_per_s: Num;
  scored_total: number; failed_total: number; held_bytes: number; runs: OverviewRun[]; store: StoreState;
}

export interface Media { n: number; kind: string; frames: number; width: number; height: number; thumbnail: string | null; full: string | null }
export interface Fault { component?: string; class: string; blame?: string; message: string; attempts?: number; permanent?: boolean }
export interface Row {
  key: number | string; run: string; epoch: string; step: number; split: string; id: string; index: Num; uid: string; group_size: Num;
  reward: string; data_source: string; prompt: string; response: string; outcome: string; score: Num;
  components: Record<string, Num>; fallback: { policy: string; value: Num } | null; error: Fault | null; worker: string; attempts: number;
  timing_ms: Record<string, number>; arrived: string; finished: string; config: string; media: Media[];
}
export interface GroupStats { uid: string; size: number; scored: number; failed: number; mean: Num; std: Num; zero_std: boolean; missing: number }
export interface Whole extends Row {
  ground_truth: unknown; extra_info: unknown; extra: Record<string, unknown>; details: Record<string, unknown>;
  errors: Fault[]; step_scores: Num[] | null; group: GroupStats | null; code: Record<string, unknown> | null;
}
export interface Results { total: number; results: Row[] }

export interface Column { mean: Num; std: Num; min?: Num; max?: Num; p10: Num; p50: Num; p90: Num; failed: number }
export interface HistoryStep {
  step: number; epoch: string; samples: number; scored: number; failed: number; mean: Num; std: Num; min: Num; max: Num;
  groups: number; zero_std_groups: number; components: Record<string, Column>; exposed_s: Num; rollout_s: Num; makespan_s: Num;
}
export interface HistoryRun {
  run: string; first: string; last: string; samples: number; failed: number; steps: number; splits: string[]; rewards: string[]; mean: Num;
}

export interface Member { key: number | string; id: string; index: Num; score: Num; outcome: string }
export interface Group { uid: string; prompt: string; size: number; mean: Num; std: Num; zero_std: boolean; members: Member[] }
export interface Histogram { lo: number; hi: number; counts: number[]; n: number; failed: number }
export interface Hint { kind: string; component?: string; with?: string; r: Num; n: number; text: string; link: string }

export interface Attempt { worker?: string; started_s: number; ended_s: number; backup?: boolean; outcome?: string }
export interface Span {
  id: string; uid?: string; generated_s: number; queued_s?: number; started_s?: number; scored_s?: number; returned_s?: number;
  worker?: string; outcome?: string; attempts?: Attempt[]; stages_s?: Record<string, number>;
}
export interface Trace { servers: number; expected?: number; spans: Span[] | null }
export interface Missing { id?: string; index?: Num; uid?: string; stage: string; age_ms?: number; worker?: string; members?: number }
export interface StepState {
  run: string; split: string; step: number; state: string; expected?: number; arrived: number; in_flight: number; missing: number;
  outcomes: Record<string, number> | null; arrival_ms: number; exposed_ms: number; deadline?: string; forgotten?: string; without: Missing[] | null;
}

export interface Progress { reward: string; state: string; why?: string; since: string; waiting: number; running: number }
export interface PendingSample {
  id: string; run: string; step: number; stage: string; attempt: number; workers?: string[]; group?: string; waits?: string;
  bytes: number; age_ms: number; deadline: string; last_error?: string;
}
export interface Pending { total: number; held_bytes: number; granted_bytes: number; samples: PendingSample[]; rewards: Progress[] }
export interface FailedSample { id: string; run: string; step: number; split: string; worker?: string; attempts: number; outcome: string; at: string }
export interface Failure {
  reward: string; component?: string; class: string; blame?: string; shape: string; message: string; count: number; scored: number;
  first: string; last: string; workers?: string[]; samples: FailedSample[];
}
export interface Failures { total: number; failures: Failure[] }
export interface WorkerProfile { name?: string; queue: string; capacity: number; narrow?: number; used?: Record<string, number>; state?: string; waits?: string }
export interface Worker {
  id: string; busy: number; state: string; profiles?: WorkerProfile[]; host?: string; devices?: string[]; models?: string[]; version?: string;
  scored: number; failed: number; started?: string; seen: string;
}
export interface Breaker { worker: string; reward: string; state: string; reason: string; since: string; until: string; permanent?: boolean }
export interface Workers { workers: Worker[]; breakers: Breaker[] }
export interface EngineServer {
  engine: string; kind: string; model: string; name: string; url: string; state: string; since: string; starts: number; pid?: number;
  in_flight: number; requests: number; failures: number; why?: string; log?: string;
}
