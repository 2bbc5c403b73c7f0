import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { dataPaths } from '../../src/config.ts';
import { isKeyedId, keyedEventIds, timeOrderedEventIds, requestKeyOf } from '../../src/datasets/event-id.ts';
import { createRandom, type Random } from '../../src/demo/random.ts';
import type { EventLookupResult } from '../../src/event-lookup/lookup-result.ts';
import { createEventFinder } from '../../src/event-lookup/finder.ts';
import { findPoint } from '../../src/lake/log/version-points.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { inParallel } from '../../src/runtime/async/in-parallel.ts';
import { isAppError } from '../../src/runtime/errors.ts';
import { readServiceStates } from '../../src/runtime/processes/service-state.ts';
import { openConnection } from '../../src/stream/connection.ts';
import { streamName } from '../../src/stream/stream.ts';
import { readBacklog } from '../../src/stream/read-backlog.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, inLongForm } from '../helpers/chaos.ts';
import { testFolder } from '../helpers/folder.ts';
import { eventLine } from '../helpers/lake.ts';
import { silentLogger } from '../helpers/nats.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { addTestApp } from '../helpers/service-access.ts';
import { openServicePublisher } from '../helpers/service-publisher.ts';

const seed = chaosSeed();
const total = chaosFigure('TRIBUTARY_TEST_EVENTS', { short: 200, long: 100_000 });
const inMessage = 50;
const inRequest = 10;
const erasures = 2;
/** Concurrent finders, each with one lookup at a time. */
const finders = 4;
const askedAtOnce = finders * 4;

/** Final state of an event. */
type Fate = 'in_lake' | 'failed' | 'erased';

/** An acknowledged event. */
interface Sent {
  readonly eventId: string;
  readonly fate: Fate;
  readonly user: string;
}

const statesOnTheWay: Readonly<Record<Fate, readonly string[]>> = {
  in_lake: ['in_stream', 'in_lake'],
  failed: ['in_stream', 'failed'],
  erased: ['in_stream', 'in_lake', 'erased'],
};

/** Creates the events of a message: plain ones, ones under keys, and ones that fail. */
function makeMessage(random: Random, number: number): { readonly payload: Buffer; readonly sent: Sent[] } {
  const sent: Sent[] = [];
  const nowMs = Date.now();
  const lines = Array.from({ length: inMessage }, (_, index) => {
    const request = Math.floor(index / inRequest);
    const ids =
      request % 2 === 0
        ? timeOrderedEventIds(nowMs)
        : keyedEventIds({ idApp: 1, key: `${number}-${request}`, method: 'customEventBatch', eventTexts: ['x'] });
    const isBad = random.integer(0, 9) === 0;
    const goes = random.integer(0, 9);
    const user = !isBad && goes < erasures ? `goes-${goes}` : 'stays';
    const eventId = ids(index % inRequest);
    sent.push({ eventId, user, fate: isBad ? 'failed' : user === 'stays' ? 'in_lake' : 'erased' });
    const time = isBad ? { event_time: 'never' } : {};
    return JSON.stringify(eventLine({ event_id: eventId, received_at: nowMs, custom_user_id: user, ...time }));
  });
  return { payload: Buffer.from(`${lines.join('\n')}\n`), sent };
}

/** Looks up an event of an app by its id, and retries while the lookup is overloaded. */
type Ask = (eventId: string, idApp?: number) => Promise<EventLookupResult>;

async function openAsk({ dataDir }: TestService): Promise<Ask> {
  const paths = dataPaths(dataDir);
  const [state] = readServiceStates(paths.run);
  const connection = await openConnection({ url: state?.natsUrl ?? '', name: 'asks', logger: silentLogger });
  const opened = Array.from({ length: finders }, (_, lane) =>
    createEventFinder({
      lakeDir: paths.lake,
      indexDir: paths.eventIndex,
      workDir: path.join(testFolder(), `find-${lane}`),
      readBacklog: (from, limits, see) => readBacklog(connection, { ...from, streamName }, limits, see),
    }),
  );
  onTestFinished(async () => {
    for (const eventFinder of opened) await eventFinder.close();
    await connection.close();
  });
  let asked = 0;
  return async (eventId, idApp = 1) => {
    for (;;)
      try {
        const deadlineMs = performance.now() + 20_000;
        asked += 1;
        const eventFinder = opened[asked % finders];
        if (eventFinder === undefined) throw new Error('there is a finder for each number');
        return await eventFinder.find({ target: { eventId, idApp }, idApps: [idApp], deadlineMs });
      } catch (error) {
        if (!isAppError(error, 'overloaded')) throw error;
      }
  };
}

function anyOf<T>(items: readonly T[], random: Random): T {
  const item = items[random.integer(0, items.length - 1)];
  if (item === undefined) throw new Error('there is none');
  return item;
}

/** Returns the error in a response; undefined if it has none. */
function findFault(
  { state, events }: EventLookupResult,
  { eventId }: Sent,
  states: readonly string[],
): string | undefined {
  const isRight = states.includes(state) && events.every((event) => event.eventId === eventId && event.state === state);
  const counts = ['erased', 'never_seen'].includes(state) ? [0] : [1];
  return isRight && counts.includes(events.length) ? undefined : `${eventId}: ${state}, ${events.length} events`;
}

test(`The lookup of each event is right while ${total} of them are committed, fail, are sealed and are erased, and after all has ended`, async ({
  skip,
}) => {
  inLongForm(skip);
  const dataDir = path.join(testFolder(), 'data');
  await addTestApp(dataDir);
  const settings = { TRIBUTARY_FLUSH_AGE_MS: '300', TRIBUTARY_SEAL_AGE_MS: '1000', TRIBUTARY_RETENTION_MS: '5000' };
  const service = await startTestService({ dataDir, settings });
  onTestFinished(() => service.destroy());
  const publisher = await openServicePublisher(dataDir, 'sends');
  onTestFinished(() => publisher.close());
  const ask = await openAsk(service);
  const random = createRandom(seed);
  const sent: Sent[] = [];
  const check = async (one: Sent, states: readonly string[]): Promise<void> => {
    expect({ seed, fault: findFault(await ask(one.eventId), one, states) }).toEqual({ seed, fault: undefined });
  };
  const erased = new Set<string>();
  const checkOnTheWay = (one: Sent): Promise<void> =>
    check(one, erased.has(one.user) ? ['erased'] : statesOnTheWay[one.fate]);

  // Looked up as they arrive, and again during the erasure of the first ones.
  let replaying: Promise<unknown> | undefined;
  for (let number = 0; sent.length < total; number += 1) {
    const made = makeMessage(random, number);
    await publisher.publish(made.payload, 10_000);
    sent.push(...made.sent);
    const some = [...made.sent.filter((_, index) => index % 10 === 0), anyOf(sent, random)];
    await inParallel(some, askedAtOnce, checkOnTheWay);
    if (sent.length >= total / 2) replaying ??= service.command('failed', 'replay');
  }
  await replaying;
  await waitUntilWorkedOff(service);
  for (let user = 0; user < erasures; user += 1) {
    const over = new AbortController();
    const erasure = service.command('erase', '--user', `goes-${user}`, '--yes').finally(() => over.abort());
    while (!over.signal.aborted) {
      const some = Array.from({ length: askedAtOnce }, () => anyOf(sent, random));
      await inParallel(some, askedAtOnce, checkOnTheWay);
    }
    await erasure;
    erased.add(`goes-${user}`);
  }
  await inParallel(sent, askedAtOnce, (one) => check(one, [one.fate]));

  // The version is that of the commit with the row.
  const { table } = lakePaths(dataPaths(dataDir).lake);
  for (const one of sent.filter(({ fate }) => fate === 'in_lake').slice(-20)) {
    const [{ version, availableAt } = {}] = (await ask(one.eventId)).events;
    const atMs = Date.parse(availableAt ?? '');
    const [before, at] = [await findPoint(table, (version ?? 0) - 1), await findPoint(table, version ?? 0)];
    expect(at?.availableAtMs).toBe(atMs);
    expect(before?.availableAtMs).toBeLessThan(atMs);
  }
  const never = { state: 'never_seen', events: [] };
  for (const { eventId } of sent.slice(0, 50)) {
    expect(await ask(eventId, 2)).toMatchObject(never);
    const neverSent = isKeyedId(eventId)
      ? keyedEventIds({ idApp: 1, key: requestKeyOf(eventId), method: 'customEventBatch', eventTexts: [] })(0)
      : timeOrderedEventIds(Date.now())(0);
    expect(await ask(neverSent)).toMatchObject(never);
  }
}, 7_200_000);
