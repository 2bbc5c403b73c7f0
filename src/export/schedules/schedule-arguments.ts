import {
  type Schedule,
  frequencies,
  periodOf,
  weekdays,
  type Frequency,
  type Recurrence,
} from '../../schedules/schedules.ts';
import { quote, type Arguments } from '../api/arguments.ts';
import { badRequest, isApiError, type ExportApiError } from '../api/envelope.ts';
import { versionParameters, parametersByName } from '../api/parameters.ts';
import { defaultTimezone } from '../api/parse-request.ts';

/** Missed slots that are caught up, by default and at most. */
const defaultCatchUp = 31;
const maxCatchUp = 100;

/** An argument of a schedule; the others are those of its exports. */
interface OwnArgument {
  readonly name: 'every' | 'at' | 'weekday' | 'catchUp';
  readonly meaning: string;
  readonly allowed: string;
  readonly accepts: (text: string, every: Frequency) => boolean;
}

export const ownArguments: readonly OwnArgument[] = [
  {
    name: 'every',
    meaning: 'Interval of the exports; required.',
    allowed: frequencies.join(', '),
    accepts: (text) => frequencies.some((frequency) => frequency === text),
  },
  {
    name: 'at',
    meaning: "Local time in timezone. Default: 04:00, or ':00' if every is hour.",
    allowed: "a time from 00:00 to 23:59, and if every is hour a minute from ':00' to ':59'",
    accepts: (text, every) => (every === 'hour' ? /^:[0-5]\d$/ : /^([01]\d|2[0-3]):[0-5]\d$/).test(text),
  },
  {
    name: 'weekday',
    meaning: 'Day of the week, if every is week. Default: monday.',
    allowed: `if every is week, ${weekdays.join(', ')}`,
    accepts: (text, every) => every === 'week' && weekdays.some((day) => day === text),
  },
  {
    name: 'catchUp',
    meaning: `Maximum number of missed slots to export after a stop. Default: ${defaultCatchUp}. Not with sinceVersion: one export then has all changes.`,
    allowed: `a whole number from 1 to ${maxCatchUp}`,
    accepts: (text) => /^[1-9]\d{0,2}$/.test(text) && Number(text) <= maxCatchUp,
  },
];

const clash = ownArguments.find(({ name }) => parametersByName.has(name));
if (clash !== undefined) throw new Error(`schemas: ${clash.name} is an argument of a schedule, and of no export`);

export const setBySchedule = versionParameters;

const frequencyOf = (own: ReadonlyMap<string, string>): Frequency =>
  frequencies.find((frequency) => frequency === own.get('every')) ?? 'day';

type ScheduleRequest = Pick<Schedule, 'rule' | 'catchUp' | 'arguments' | 'sinceVersion'>;

function parseOwn(callArguments: Arguments): ReadonlyMap<string, string> | ExportApiError {
  const values = new Map<string, string>();
  for (const { name, allowed, accepts } of ownArguments) {
    const texts = callArguments.get(name);
    if (texts === undefined && name === 'every') return badRequest('Argument every is expected but not set');
    if (texts === undefined) continue;
    const [text = ''] = texts;
    if (texts.length !== 1 || !accepts(text, frequencyOf(values)))
      return badRequest(`Argument ${name} is invalid: ${texts.slice(0, 5).map(quote).join(', ')}; allowed: ${allowed}`);
    values.set(name, text);
  }
  return values;
}

function toRule(own: ReadonlyMap<string, string>, timezone: string): Recurrence {
  const every = frequencyOf(own);
  const weekday = weekdays.findIndex((day) => day === (own.get('weekday') ?? 'monday')) + 1;
  return {
    every,
    at: own.get('at') ?? (every === 'hour' ? ':00' : '04:00'),
    ...(every === 'week' ? { weekday } : {}),
    timezone,
  };
}

export function parseScheduleRequest(callArguments: Arguments): ScheduleRequest | ExportApiError {
  const own = parseOwn(callArguments);
  if (isApiError(own)) return own;
  const set = setBySchedule.find((name) => callArguments.has(name));
  if (set !== undefined)
    return badRequest(`Argument ${set} is invalid: the schedule sets it for each of its exports; leave it out`);
  const [sinceVersion, ...more] = new Set(callArguments.get('sinceVersion'));
  if (more.length > 0) return badRequest('Argument sinceVersion takes one value');
  if (sinceVersion !== undefined && own.has('catchUp'))
    return badRequest('Argument catchUp is invalid: with sinceVersion one export has all changes; leave it out');
  const others = [...callArguments].filter(([name]) => name !== 'sinceVersion' && !own.has(name));
  return {
    rule: toRule(own, callArguments.get('timezone')?.[0] ?? defaultTimezone),
    catchUp: sinceVersion === undefined ? Number(own.get('catchUp') ?? defaultCatchUp) : 1,
    arguments: others.toSorted(([a], [b]) => (a < b ? -1 : 1)),
    ...(sinceVersion === undefined ? {} : { sinceVersion }),
  };
}

/** Returns the arguments of a slot's export: of the period before it, or of the rows since a cursor. */
export function argumentsOfSlot(order: ScheduleRequest, slot: number, place = order.sinceVersion): Arguments {
  const own = place === undefined ? periodOf(order.rule, slot) : { sinceVersion: place };
  return new Map([...order.arguments, ...Object.entries(own).map(([name, value]) => [name, [value]] as const)]);
}
