import type { Stoppable } from '../runtime/lifecycle.ts';

/** What arrived of one app at one process within a moment. */
export interface LiveMessage {
  /** Lines of JSON, each an object. */
  readonly events: readonly string[];
  readonly refusals: readonly string[];
  /** How many more there were. */
  readonly eventsLeftOut: number;
  readonly refusalsLeftOut: number;
}

/** Renders a message: a line that counts, then the lines of the events, then those of the refusals. */
export function renderMessage({ events, refusals, eventsLeftOut, refusalsLeftOut }: LiveMessage): string {
  return [JSON.stringify([events.length, eventsLeftOut, refusalsLeftOut]), ...events, ...refusals].join('\n');
}

/** Reads a message; undefined for a text that is none, such as that of another version of the program. */
export function parseMessage(text: string): LiveMessage | undefined {
  const [head = '', ...lines] = text.split('\n');
  const counts = /^\[(\d{1,15}),(\d{1,15}),(\d{1,15})\]$/.exec(head);
  if (counts === null) return undefined;
  const [, events, eventsLeftOut, refusalsLeftOut] = counts.map(Number);
  if (events === undefined || events > lines.length) return undefined;
  return {
    events: lines.slice(0, events),
    refusals: lines.slice(events),
    eventsLeftOut: eventsLeftOut ?? 0,
    refusalsLeftOut: refusalsLeftOut ?? 0,
  };
}

/**
 * Live: what of an app arrives, shown to its owner as it does.
 *
 * In: lines of acknowledged events and records of refusals, from every ingest process; who wants to see which app, from
 * every process that answers listeners. Out: server-sent events.
 * Invariant: nothing waits for a listener. What is shown is a sample, bounded where it is taken, and what is left out is
 * counted. While nobody listens, a request costs one look at a flag.
 * Crash: nothing is kept. Who listened comes again, and sees what arrives from then on.
 */
export interface LiveSource extends Stoppable {
  /** Whether anybody listens to any app. */
  isWanted(): boolean;
  /** Takes the lines (NDJSON) of a request that was acknowledged. */
  stored(idApp: number, lines: Buffer, count: number): void;
  /** Takes records of refusals, each of which renders as one line. */
  refused(idApp: number, records: readonly object[]): void;
}

/** The channel's part in it. */
export interface SourceChannel {
  onAnnouncement(listener: (apps: readonly number[]) => void): () => void;
  send(idApp: number, text: string): void;
}

/** How often what was taken is sent on, and how much of an app at most goes with it, of each process. */
const sendEveryMs = 250;
const maxEvents = 5;
const maxRefusals = 5;
const maxBytes = 64 * 1024;
/** An app is wanted for so long after somebody has said so: three announcements. */
const wantedMs = 6000;
/** Apps that are wanted at a time; those beyond are shown once others are no longer. */
const maxApps = 256;

/** What was taken of a wanted app since the last message. */
interface Sample {
  wantedUntilMs: number;
  events: string[];
  refusals: string[];
  bytes: number;
  eventsLeftOut: number;
  refusalsLeftOut: number;
}

const empty = (): Omit<Sample, 'wantedUntilMs'> => ({
  events: [],
  refusals: [],
  bytes: 0,
  eventsLeftOut: 0,
  refusalsLeftOut: 0,
});

function takeRefusal(sample: Sample, record: object): void {
  const line = JSON.stringify(record);
  if (sample.refusals.length >= maxRefusals || sample.bytes + line.length > maxBytes) {
    sample.refusalsLeftOut += 1;
    return;
  }
  sample.refusals.push(line);
  sample.bytes += line.length;
}

function takeEvents(sample: Sample, lines: Buffer, count: number): void {
  let taken = 0;
  let from = 0;
  while (sample.events.length < maxEvents && from < lines.length) {
    const end = lines.indexOf(10, from);
    const to = end === -1 ? lines.length : end;
    if (sample.bytes + to - from > maxBytes) break;
    sample.events.push(lines.toString('utf8', from, to));
    sample.bytes += to - from;
    taken += 1;
    from = to + 1;
  }
  sample.eventsLeftOut += count - taken;
}

/** Creates the source of one ingest process. */
export function createLiveSource(channel: SourceChannel): LiveSource {
  const samples = new Map<number, Sample>();
  let timer: NodeJS.Timeout | undefined;

  function send(): void {
    const nowMs = performance.now();
    for (const [idApp, sample] of samples) {
      const { events, refusals, eventsLeftOut, refusalsLeftOut } = sample;
      if (events.length + refusals.length + eventsLeftOut + refusalsLeftOut > 0) {
        channel.send(idApp, renderMessage({ events, refusals, eventsLeftOut, refusalsLeftOut }));
        Object.assign(sample, empty());
      }
      if (sample.wantedUntilMs < nowMs) samples.delete(idApp);
    }
    if (samples.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  }

  const forget = channel.onAnnouncement((apps) => {
    const wantedUntilMs = performance.now() + wantedMs;
    for (const idApp of apps) {
      const known = samples.get(idApp);
      if (known !== undefined) known.wantedUntilMs = wantedUntilMs;
      else if (samples.size < maxApps) samples.set(idApp, { wantedUntilMs, ...empty() });
    }
    if (samples.size > 0) timer ??= setInterval(send, sendEveryMs);
  });

  return {
    isWanted: () => timer !== undefined,
    stored(idApp, lines, count) {
      const sample = samples.get(idApp);
      if (sample !== undefined) takeEvents(sample, lines, count);
    },
    refused(idApp, records) {
      const sample = samples.get(idApp);
      if (sample !== undefined) for (const record of records) takeRefusal(sample, record);
    },
    stop() {
      forget();
      send();
      clearInterval(timer);
      timer = undefined;
      samples.clear();
      return Promise.resolve();
    },
  };
}
