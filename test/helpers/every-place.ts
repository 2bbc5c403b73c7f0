import type { Agent } from 'node:http';
import type { Random } from '../../src/demo/random.ts';
import { sendRaw } from './http.ts';
import { idParam, type Ledger } from './ledger.ts';
import type { TestService } from './service.ts';
import { waitFor } from './wait.ts';

/** One event for `importEvent`. */
export interface KeyedEvent {
  readonly key: string;
  readonly name: string;
  readonly user: string;
  /** Keeps connections, for many events. */
  readonly agent?: Agent;
  readonly isReuse?: boolean;
}

/**
 * Imports one event under a key, again and again until it is acknowledged, as the contract tells clients to. `isReuse`:
 * the key stands for another event, so that the import process may refuse it with 400.
 */
export async function importEvent(
  service: TestService,
  token: string,
  { key, name, user, agent, isReuse = false }: KeyedEvent,
): Promise<void> {
  const body = Buffer.from(
    JSON.stringify({ customUserId: user, customEventName: name, customEventParams: { [idParam]: name } }),
  );
  const headers = { authorization: token, 'idempotency-key': key };
  const acknowledged = (): Promise<boolean> =>
    sendRaw(Number(new URL(service.s2s).port), {
      verb: 'POST',
      path: '/v1/customEvent/?idApp=1',
      headers,
      body,
      ...(agent === undefined ? {} : { agent }),
    }).then(
      ({ status, body: text }) => status === 200 || (isReuse && status === 400 && text.includes('Bad Request')),
      () => false,
    );
  await waitFor(`the event ${name} is acknowledged`, acknowledged, 60_000);
}

/**
 * Sends events to the places that ordinary ones do not go to: `each` keys that come again with another body, which must
 * not be stored but kept as failed, and `each` events of a user who is to be erased (`forgotten`). The ledger gets the
 * first bodies. In between the import process is killed: it would refuse the keys that it has passed on itself.
 */
export async function fillEveryPlace(
  service: TestService,
  token: string,
  { ledger, each, random }: { readonly ledger: Ledger; readonly each: number; readonly random: Random },
): Promise<void> {
  const names = Array.from({ length: each }, () => ledger.nextId());
  for (const name of names) await importEvent(service, token, { key: name, name, user: 'steady' });
  ledger.record(names, 'acknowledged');
  await service.kill9('ingest', random);
  for (const [n, name] of names.entries()) {
    await importEvent(service, token, { key: name, name: `another body of ${name}`, user: 'steady' });
    await importEvent(service, token, { key: `forgotten-${n}`, name: `forgotten-${n}`, user: 'forgotten' });
  }
}
