import type { IncomingMessage, ServerResponse } from 'node:http';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import type { AccessReader, App } from '../access/access.ts';
import { isUuid, makeRequestKeys, naturalKeyFields, readKeyTexts, type KeyMask } from '../datasets/event-id.ts';
import { createQuotaCounter } from '../runtime/async/rate-limits.ts';
import type { QueryEvent, EventQuery, EventReply } from '../stream/event-query-channel.ts';
import type { ImportResponses } from './responses.ts';
import { findApp } from './find-app.ts';
import { maxKeyLength } from './required-ids.ts';
import type { Refusal } from './refusal.ts';

interface EventLookupDependencies {
  readonly access: AccessReader;
  readonly importResponses: ImportResponses;
  readonly ask: QueryEvent;
  readonly keyMask?: KeyMask | undefined;
}

/** Limit of an app's queries, per import process. */
export const eventQuota = { limit: 20, windowMs: 1000 } as const;
/** Limits of concurrent queries, per import process: in total, of an account, of an app. */
const maxAsked = 32;
const maxAskedOfAccount = 12;
const maxAskedOfApp = 4;
/** Maximum time for all queries of a request, ms. */
const askTimeoutMs = 1700;
/** Parameters, of which a query has one. */
const names = ['eventId', 'key', ...naturalKeyFields.keys()];
const oneOf = names.join(' or ');

const refuse = (detail: string): Refusal => ({ reason: 'rules', detail });

/** Parses the query of a request. A key may mean several events: the first known one counts. */
export function parseEventQuery(
  query: Readonly<Record<string, unknown>>,
  idApp: number,
  keyMask: KeyMask = 0,
): readonly EventQuery[] | Refusal {
  const other = Object.keys(query).find((name) => name !== 'idApp' && !names.includes(name));
  if (other !== undefined) return refuse(`unknown parameter ${other}; expected ${oneOf}`);
  const [name, another] = names.filter((one) => query[one] !== undefined);
  if (name === undefined || another !== undefined) return refuse(`either ${oneOf} must be given`);
  const value = query[name];
  if (name === 'eventId') {
    const id = typeof value === 'string' ? value.toLowerCase() : '';
    return isUuid(id) ? [{ idApp, eventId: id }] : refuse('eventId must be a UUID, as exports have it');
  }
  const makeId = naturalKeyFields.get(name);
  if (makeId !== undefined)
    return typeof value === 'string' && value !== ''
      ? [{ idApp, eventId: makeId(idApp, value) }]
      : refuse(`${name} must not be empty, and be given once`);
  const texts = typeof value === 'string' ? readKeyTexts(value) : [];
  const fitting = texts.filter(({ length }) => length >= 1 && length <= maxKeyLength);
  if (fitting.length === 0) return refuse(`key must have 1 to ${maxKeyLength} characters, and be given once`);
  return fitting.flatMap((text) => makeRequestKeys(idApp, text, keyMask).map((requestKey) => ({ idApp, requestKey })));
}

const isNeverSeen = (reply: EventReply): boolean =>
  'answer' in reply && membersOf(reply.answer)['state'] === 'never_seen';

/** Asks one query after the other until the event of one was seen. */
async function askEach(ask: QueryEvent, questions: readonly EventQuery[]): Promise<EventReply> {
  const untilMs = performance.now() + askTimeoutMs;
  let reply: EventReply = { busy: 'no lookup was made' };
  for (const question of questions) {
    reply = await ask(question, Math.max(1, untilMs - performance.now()));
    if (!isNeverSeen(reply)) return reply;
  }
  return reply;
}

type Asker = Pick<App, 'idApp' | 'idAccount'>;

export type EventLookup = ReturnType<typeof createEventLookup>;

/** Creates GET /v1/event: import passes the lookup to a process that reads the lake, a limited number at a time. */
export function createEventLookup({ access, importResponses, ask, keyMask }: EventLookupDependencies) {
  const quota = createQuotaCounter([eventQuota]);
  const asked = new Set<Asker>();

  function hasCapacity({ idApp, idAccount }: Asker): boolean {
    const ofAccount = [...asked].filter((other) => other.idAccount === idAccount);
    const ofApp = ofAccount.filter((other) => other.idApp === idApp);
    return asked.size < maxAsked && ofAccount.length < maxAskedOfAccount && ofApp.length < maxAskedOfApp;
  }

  return {
    async handle(
      query: Readonly<Record<string, unknown>>,
      request: IncomingMessage,
      response: ServerResponse,
    ): Promise<void> {
      const { idApp } = query;
      const end = (refusal: Refusal): void => importResponses.refuse(response, refusal, { idApp });
      const app = findApp(access, idApp, request);
      if ('reason' in app) return end(app);
      if (quota.take(String(app.idApp), performance.now()) !== undefined)
        return end({ reason: 'quota', detail: `an app may send ${eventQuota.limit} lookups per second` });
      const questions = parseEventQuery(query, app.idApp, keyMask);
      if ('reason' in questions) return end(questions);
      const asker = { idApp: app.idApp, idAccount: app.idAccount };
      if (!hasCapacity(asker)) return end({ reason: 'busy', detail: 'too many concurrent lookups' });
      asked.add(asker);
      try {
        const reply = await askEach(ask, questions);
        if ('busy' in reply) end({ reason: 'busy', detail: reply.busy });
        else importResponses.send(response, JSON.stringify(reply.answer));
      } finally {
        asked.delete(asker);
      }
    },
  };
}
