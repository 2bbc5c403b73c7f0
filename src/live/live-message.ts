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
