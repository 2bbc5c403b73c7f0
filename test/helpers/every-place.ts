import type { Agent } from 'node:http';
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
}

/** Imports one event under a key, again and again until it is acknowledged, as the contract tells clients to. */
export async function importEvent(
  service: TestService,
  token: string,
  { key, name, user, agent }: KeyedEvent,
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
      (answer) => answer.status === 200,
      () => false,
    );
  await waitFor(`the event ${name} is acknowledged`, acknowledged, 60_000);
}

/**
 * Sends events to the places that ordinary ones do not go to: `each` keys that come again with another body, which must
 * not be stored but kept as failed, and `each` events of a user who is to be erased (`forgotten`). The ledger gets the
 * first bodies.
 */
export async function fillEveryPlace(service: TestService, token: string, ledger: Ledger, each: number): Promise<void> {
  for (let n = 0; n < each; n += 1) {
    const name = ledger.nextId();
    await importEvent(service, token, { key: name, name, user: 'steady' });
    ledger.record([name], 'acknowledged');
    await importEvent(service, token, { key: name, name: `another body of ${name}`, user: 'steady' });
    await importEvent(service, token, { key: `forgotten-${n}`, name: `forgotten-${n}`, user: 'forgotten' });
  }
}
