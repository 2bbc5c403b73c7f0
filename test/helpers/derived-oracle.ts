import type { ImportedEvent } from './export-events.ts';

/** A row of a derived event: its imported event, and derived values. */
export interface DerivedRow {
  readonly event: ImportedEvent;
  readonly countEvent?: number;
  readonly duration?: number;
}

type Subject = 'user' | 'device';

const derivations: Readonly<Record<string, { readonly derive: 'first' | 'days' | 'sessions'; readonly of: Subject }>> =
  {
    newUsers: { derive: 'first', of: 'user' },
    newDevices: { derive: 'first', of: 'device' },
    userActivities: { derive: 'days', of: 'user' },
    activities: { derive: 'days', of: 'device' },
    userSessions: { derive: 'sessions', of: 'user' },
    sessions: { derive: 'sessions', of: 'device' },
    launch: { derive: 'sessions', of: 'device' },
  };

/** Time zones with whole, half and quarter hours, with and without summer time. */
export const zones = [
  'UTC',
  'Europe/Moscow',
  'Europe/Berlin',
  'America/New_York',
  'America/St_Johns',
  'America/Santiago',
  'Asia/Katmandu',
  'Asia/Tehran',
  'Australia/Sydney',
  'Pacific/Auckland',
];

/** The derived export events, without the older name of one. */
export const derivedEvents: readonly string[] = Object.keys(derivations).filter((name) => name !== 'launch');

const deviceFields = ['instanceId', 'lvid', 'gaid', 'androidId', 'appSetId', 'idfa', 'iosVendorId'];

function subjectOf(of: Subject, { fields }: ImportedEvent): string | undefined {
  const names = of === 'user' ? ['customUserId'] : deviceFields;
  const name = names.find((field) => (fields[field] ?? '') !== '');
  return name === undefined ? undefined : `${name} ${String(fields[name])}`;
}

/** Groups the events by app and subject, in order. */
function bySubject(of: Subject, events: readonly ImportedEvent[]): ImportedEvent[][] {
  const histories = new Map<string, ImportedEvent[]>();
  for (const event of events) {
    const subject = subjectOf(of, event);
    if (subject === undefined) continue;
    const key = `${event.idApp} ${subject}`;
    histories.set(key, [...(histories.get(key) ?? []), event]);
  }
  return [...histories.values()].map((history) =>
    history.toSorted((a, b) => a.eventTimestamp - b.eventTimestamp || (a.eventId < b.eventId ? -1 : 1)),
  );
}

/** Splits a history into sessions: more than half an hour without an event ends one. */
function sessionsOf(history: readonly ImportedEvent[]): ImportedEvent[][] {
  const sessions: ImportedEvent[][] = [];
  for (const event of history) {
    const session = sessions.at(-1);
    const before = session?.at(-1);
    if (session === undefined || before === undefined || event.eventTimestamp - before.eventTimestamp > 1800)
      sessions.push([event]);
    else session.push(event);
  }
  return sessions;
}

/** Splits a history into days: a day that a clock change leaves and enters again is one. */
function daysOf(history: readonly ImportedEvent[], dateOf: (seconds: number) => string): ImportedEvent[][] {
  const days = new Map<string, ImportedEvent[]>();
  for (const event of history) {
    const date = dateOf(event.eventTimestamp);
    days.set(date, [...(days.get(date) ?? []), event]);
  }
  return [...days.values()];
}

/**
 * Returns the rows of a derived event over all of these events, by time; undefined for an event that is not derived.
 * `dateOf` returns the calendar day of a time in the request's zone.
 */
export function deriveRows(
  name: string,
  events: readonly ImportedEvent[],
  dateOf: (seconds: number) => string,
): DerivedRow[] | undefined {
  const derivation = derivations[name];
  if (derivation === undefined) return undefined;
  const histories = bySubject(derivation.of, events);
  const rows = histories.flatMap((history): DerivedRow[] => {
    const { derive } = derivation;
    const pieces = derive === 'first' ? [history] : derive === 'days' ? daysOf(history, dateOf) : sessionsOf(history);
    return pieces.flatMap((piece) => {
      const [event] = piece;
      if (event === undefined) return [];
      if (derivation.derive === 'first') return [{ event }];
      if (derivation.derive === 'days') return [{ event, countEvent: piece.length }];
      const last = piece.at(-1) ?? event;
      return [{ event, countEvent: piece.length, duration: last.eventTimestamp - event.eventTimestamp }];
    });
  });
  return rows.toSorted(
    (a, b) => a.event.eventTimestamp - b.event.eventTimestamp || (a.event.eventId < b.event.eventId ? -1 : 1),
  );
}
