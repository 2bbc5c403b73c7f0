import { inputStart } from '../../src/client/event-source.ts';
import type {
  BatchResponse,
  ImportArea,
  KeyLookupResult,
  RetryLater,
  ServiceValidationError,
} from '../../src/client/import-area.ts';
import type { ImportRecord } from '../../src/client/import-progress.ts';
import type { ImportOptions, ImportState } from '../../src/client/import-state.ts';
import type { Random } from '../../src/demo/random.ts';

const keyMemoryMs = 24 * 3_600_000;

/** The initial state of an import. */
export const emptyState: ImportState = {
  format: 2,
  identity: { idApp: 1, event: 'customEvent', format: 'ndjson', map: {}, sha256: '' },
  salt: '',
  service: [],
  startedAt: '',
  acknowledgedThrough: { batches: 0, place: inputStart, stored: 0, refused: 0, refusedBytes: 0 },
  sendLimit: 0,
  sinceMs: 0,
  apart: {},
  lastKeys: [],
};

/** Returns the options of an import of custom events, with changes. */
export const importOptions = (changes: Partial<ImportOptions> = {}): ImportOptions => ({
  idApp: 1,
  event: 'customEvent',
  format: 'ndjson',
  map: {},
  parallel: 3,
  giveUpAfterMs: 60_000,
  again: false,
  nowMs: () => 1_800_000_000_000,
  signal: new AbortController().signal,
  ...changes,
});

/** A minimal import area by docs/api.md: responses are lost, keys are forgotten after a day. */
export interface ModelService extends ImportArea {
  /** Number of times that each event was stored, by its text. */
  readonly stored: ReadonlyMap<string, number>;
  /** Keys that were repeated with other events. */
  readonly reusedKeys: readonly string[];
  /** Accepts events from now on that it has rejected. */
  loosen(): void;
}

/**
 * Creates a run's environment from a seed: its clock, the service and the file of its state. `isSteady`: whether a
 * request always has the same error, as with an unchanged version of the service.
 */
export function createModel(random: Random, state: ImportState, isSteady = false) {
  const steady = new Map<string, readonly (number | undefined)[]>();
  const stored = new Map<string, number>();
  const keys = new Map<string, { readonly body: string; readonly atMs: number }>();
  const reusedKeys: string[] = [];
  let isStrict = true;
  let nowMs = 1_800_000_000_000;
  let leftSteps = Number.POSITIVE_INFINITY;
  let [atRest, refused] = [JSON.stringify(state), ''];

  /** Advances the time. A run that is to be killed ends here, and at each later step. */
  function step(): void {
    nowMs += random.integer(0, 2000);
    leftSteps -= 1;
    if (leftSteps <= 0) throw new Error('killed');
  }

  /** Returns a response without a result; sometimes it arrives after the machine has slept for a day. */
  function later(why: string): RetryLater & { readonly state: 'later' } {
    if (random.chance(0.05)) nowMs += 25 * 3_600_000;
    return { state: 'later', why, waitMs: 0 };
  }

  function judge(body: string): readonly ServiceValidationError[] {
    const events = JSON.parse(body) as readonly { readonly bad?: boolean }[];
    const faulty = events.flatMap(({ bad }, index) => (bad === true && isStrict ? [index] : []));
    // A response has space for a few errors, and may name no event at all; responses to the same request name the same
    // ones.
    const named = steady.get(body) ?? (random.chance(0.1) ? [undefined] : faulty.slice(0, random.integer(1, 3)));
    if (isSteady) steady.set(body, named);
    return faulty.length === 0
      ? []
      : named.map((index) => ({ index, field: 'bad', reason: 'must not be', hint: undefined }));
  }

  function take(body: string, key: string): BatchResponse {
    const faults = judge(body);
    if (faults.length > 0) return { state: 'rejected', validationErrors: faults };
    const known = keys.get(key);
    if (known !== undefined && nowMs - known.atMs <= keyMemoryMs) {
      if (known.body !== body) reusedKeys.push(key);
      return { state: 'stored', unknownParameters: [] };
    }
    keys.set(key, { body, atMs: nowMs });
    for (const event of JSON.parse(body) as readonly object[]) {
      const text = JSON.stringify(event);
      stored.set(text, (stored.get(text) ?? 0) + 1);
    }
    return { state: 'stored', unknownParameters: [] };
  }

  const service: ModelService = {
    stored,
    reusedKeys,
    loosen: () => void (isStrict = false),
    async postBatch(_method, body, key) {
      step();
      if (random.chance(0.1)) return later('it is busy');
      const answer = take(body, key);
      step();
      return random.chance(0.1) ? later('the answer was lost') : answer;
    },
    async findKey(key): Promise<KeyLookupResult | RetryLater> {
      step();
      if (random.chance(0.2)) return later('it cannot be said now');
      const known = keys.get(key);
      return { isKnown: known !== undefined, isInLake: true, receivedAtMs: known?.atMs };
    },
    async checkBatch(_method, body) {
      step();
      if (random.chance(0.1)) return later('it is busy');
      const faults = judge(body);
      return faults.length > 0
        ? { state: 'rejected', validationErrors: faults }
        : { state: 'stored', unknownParameters: [] };
    },
    checkAccess: async () => undefined,
    identify: async () => ({ keys: [], atMs: nowMs }),
  };
  const record: ImportRecord = {
    async writeState(next) {
      step();
      atRest = JSON.stringify(next);
      step();
    },
    async writeRejected(lines, atByte) {
      step();
      refused = `${refused.slice(0, atByte)}${lines}`;
      step();
      return refused.length;
    },
  };
  return {
    service,
    record,
    nowMs: () => nowMs,
    state: () => JSON.parse(atRest) as ImportState,
    refusedLines: () =>
      refused
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => (JSON.parse(line) as { readonly line: number }).line),
    pass: (ms: number) => void (nowMs += ms),
    /** Kills the next run after this number of steps; it starts a while after the previous one. */
    dieAfter(steps: number, pauseMs: number): void {
      nowMs += pauseMs;
      leftSteps = steps;
    },
  };
}
