/** Expected content of the parameter catalogue, computed in plain JavaScript from the events. */

/** A custom event as it was sent; times in Unix seconds. */
export interface SentEvent {
  readonly idApp: number;
  readonly name: string;
  readonly params: Readonly<Record<string, string>>;
  readonly time: number;
  readonly user: string;
}

/** A parameter of the catalogue, as expected. */
export interface OracleParameter {
  readonly type: string;
  readonly seen: number;
  readonly types: Record<string, number>;
  readonly values: ReadonlyMap<string, ReadonlySet<string>>;
  readonly firstSeen: string;
  readonly lastSeen: string;
}

export interface OracleEvent {
  readonly events: number;
  readonly days: readonly { readonly date: string; readonly events: number }[];
  readonly firstSeen: string;
  readonly lastSeen: string;
  readonly parameters: ReadonlyMap<string, OracleParameter>;
}

const isDay = (text: string): boolean => {
  const time = new Date(`${text}T00:00:00Z`);
  return !Number.isNaN(time.getTime()) && time.toISOString().startsWith(text);
};

function isNumber(value: string): boolean {
  try {
    return Number.isFinite(JSON.parse(value)) && value.trim() === value;
  } catch {
    return false;
  }
}

/** Returns the type of a value by its form. */
export function typeOf(value: string): string {
  if (value.replaceAll(' ', '') === '') return 'empty';
  if (isNumber(value)) {
    const digits = /^-?(\d{1,38})$/.exec(value)?.[1]?.length;
    return digits === undefined ? 'decimal' : digits <= 18 ? 'integer' : 'long';
  }
  if (['true', 'True', 'TRUE', 'false', 'False', 'FALSE'].includes(value)) return 'boolean';
  const [day = '', clock] = value.split(/[T ]/);
  if (!/^[0-9]{4}-[0-9]{2}-[0-9]{2}$/.test(day) || !isDay(day)) return 'text';
  if (clock === undefined) return 'date';
  const parts = /^([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:?[0-9]{2})?$/.exec(clock);
  return parts !== null && Number(parts[1]) < 24 && Number(parts[2]) < 60 && Number(parts[3]) < 60 ? 'time' : 'text';
}

function mainTypeOf(types: Record<string, number>, seen: number): string {
  const n = (type: string): number => types[type] ?? 0;
  const least = 0.99 * (seen - n('empty'));
  if (seen === n('empty')) return 'empty';
  if (n('integer') + n('long') + n('decimal') >= least)
    return n('decimal') > 0 ? 'decimal' : n('long') > 0 ? 'long' : 'integer';
  if (n('date') + n('time') >= least) return n('time') === 0 ? 'date' : 'time';
  return n('boolean') >= least ? 'boolean' : 'text';
}

const toIso = (seconds: number): string => new Date(seconds * 1000).toISOString();
const range = (events: readonly SentEvent[]) => {
  const times = events.map(({ time }) => time);
  return {
    firstSeen: toIso(times.reduce((a, b) => Math.min(a, b))),
    lastSeen: toIso(times.reduce((a, b) => Math.max(a, b))),
  };
};

function describeParameter(name: string, events: readonly SentEvent[]): OracleParameter {
  const having = events.filter(({ params }) => Object.hasOwn(params, name));
  const types: Record<string, number> = {};
  const values = new Map<string, Set<string>>();
  for (const { params, user } of having) {
    const value = params[name] ?? '';
    types[typeOf(value)] = (types[typeOf(value)] ?? 0) + 1;
    values.set(value, (values.get(value) ?? new Set()).add(user));
  }
  return { type: mainTypeOf(types, having.length), seen: having.length, types, values, ...range(having) };
}

/** Returns the expected catalogue of an app's events by event name. */
export function describeEvents(all: readonly SentEvent[], idApp: number): Map<string, OracleEvent> {
  const groups = new Map<string, SentEvent[]>();
  for (const event of all.filter((one) => one.idApp === idApp)) {
    const known = groups.get(event.name) ?? [];
    if (known.push(event) === 1) groups.set(event.name, known);
  }
  return new Map(
    [...groups].map(([name, events]) => {
      const perDay = new Map<string, number>();
      for (const { time } of events)
        perDay.set(toIso(time).slice(0, 10), (perDay.get(toIso(time).slice(0, 10)) ?? 0) + 1);
      const names = new Set(events.flatMap(({ params }) => Object.keys(params)));
      return [
        name,
        {
          events: events.length,
          days: [...perDay]
            .map(([date, count]) => ({ date, events: count }))
            .toSorted((a, b) => (a.date < b.date ? 1 : -1)),
          ...range(events),
          parameters: new Map([...names].map((parameter) => [parameter, describeParameter(parameter, events)])),
        },
      ];
    }),
  );
}
