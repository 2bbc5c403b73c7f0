import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AccessReader } from '../access/access.ts';
import { isOwnId, makeRequestKey, readKeyTexts } from '../datasets/event-id.ts';
import { createQuotaCounter } from '../runtime/http/quota.ts';
import type { AskForEvent, EventQuestion, EventReply } from '../stream/event-questions.ts';
import type { Answers } from './answers.ts';
import { findApp } from './find-app.ts';
import { maxKeyLength } from './limits.ts';
import type { Refusal } from './refusal.ts';

/**
 * GET /v1/event: where an event is that the app has sent. Import only hands the question on, to a process that reads the
 * lake: many of them must not keep it from its work.
 */
export interface EventLookUp {
  /** Answers a request; `query` holds its parameters as they are. */
  handle(query: Readonly<Record<string, unknown>>, request: IncomingMessage, response: ServerResponse): Promise<void>;
}

export interface EventLookUpDependencies {
  readonly access: AccessReader;
  readonly answers: Answers;
  readonly ask: AskForEvent;
}

/** Questions of an app, of each process of import. */
export const eventQuota = { limit: 20, windowMs: 1000 } as const;
/** Questions on their way at a time, of each process of import. */
const maxAsked = 8;
/** Longer than the answer takes at most. */
const askTimeoutMs = 1700;
const parameters = ['idApp', 'eventId', 'key'];

const refuse = (detail: string): Refusal => ({ reason: 'rules', detail });

/**
 * Reads the question of a request; the app is known by then. A key may be read in several ways: that of the first that
 * is known is the answer.
 */
export function parseQuestion(
  query: Readonly<Record<string, unknown>>,
  idApp: number,
): readonly EventQuestion[] | Refusal {
  const { eventId, key } = query;
  const other = Object.keys(query).find((name) => !parameters.includes(name));
  if (other !== undefined) return refuse(`there is no parameter ${other}: eventId or key is`);
  if ((eventId === undefined) === (key === undefined)) return refuse('either eventId or key must be given');
  if (eventId !== undefined) {
    const id = typeof eventId === 'string' ? eventId.toLowerCase() : '';
    return isOwnId(id) ? [{ idApp, eventId: id }] : refuse('eventId must be an event id as exports have it');
  }
  const texts = typeof key === 'string' ? readKeyTexts(key) : [];
  const fitting = texts.filter(({ length }) => length >= 1 && length <= maxKeyLength);
  if (fitting.length === 0) return refuse(`key must have 1 to ${maxKeyLength} characters, and be given once`);
  return fitting.map((text) => ({ idApp, requestKey: makeRequestKey(idApp, text) }));
}

const isNeverSeen = (reply: EventReply): boolean =>
  'answer' in reply && (reply.answer as { readonly state?: unknown } | null)?.state === 'never_seen';

/** Asks until one of the questions has an answer that says more than that its event was never seen. */
async function askEach(ask: AskForEvent, questions: readonly EventQuestion[]): Promise<EventReply> {
  const untilMs = performance.now() + askTimeoutMs;
  let reply: EventReply = { busy: 'nothing was asked' };
  for (const question of questions) {
    reply = await ask(question, Math.max(1, untilMs - performance.now()));
    if (!isNeverSeen(reply)) return reply;
  }
  return reply;
}

/** Creates the look-up of one server. */
export function createEventLookUp({ access, answers, ask }: EventLookUpDependencies): EventLookUp {
  const quota = createQuotaCounter([eventQuota]);
  let asked = 0;

  return {
    async handle(query, request, response) {
      const { idApp } = query;
      const end = (refusal: Refusal): void => answers.refuse(response, refusal, { idApp });
      const app = findApp(access, idApp, request);
      if ('reason' in app) return end(app);
      const waitSeconds = quota.take(String(app.idApp), performance.now());
      if (waitSeconds !== undefined)
        return end({ reason: 'quota', detail: `an app may ask ${eventQuota.limit} times a second` });
      const questions = parseQuestion(query, app.idApp);
      if ('reason' in questions) return end(questions);
      if (asked >= maxAsked) return end({ reason: 'busy', detail: 'too many questions wait for an answer' });
      asked += 1;
      try {
        const reply = await askEach(ask, questions);
        if ('busy' in reply) end({ reason: 'busy', detail: reply.busy });
        else answers.send(response, JSON.stringify(reply.answer));
      } finally {
        asked -= 1;
      }
    },
  };
}
