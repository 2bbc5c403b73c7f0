/**
 * Webhooks: addresses that get the ended exports and the notices of an account.
 *
 * Layout: `webhooks/<account>/<id>.json`, one record each; the signing secrets are encrypted under `keys/webhooks.key`.
 * Ids are random and never repeat. Next to it `<id>.deliveries.json`, its last messages, and the account's `notices.json`.
 * Invariant: a damaged record affects no other webhook of its account.
 * Crash: a record is the previous or the new one.
 */
import { randomBytes } from 'node:crypto';
import { createSealing, openAccountRecords } from '../runtime/store/account-records.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { createRecords, type Records } from '../runtime/store/records.ts';
import { isCount, isText, listOf, optional, shapeOf } from '../runtime/store/shape.ts';
import { removeDeliveryLog } from './delivery-log.ts';

export interface Webhook {
  /** `wh_` and 16 hex digits. */
  readonly idWebhook: string;
  readonly idAccount: number;
  readonly url: string;
  readonly createdMs: number;
  readonly sealedSecret: string;
  /** The secret before a rotation, which also signs until a time, Unix ms. */
  readonly formerSecret?: FormerSecret;
}

interface FormerSecret {
  readonly sealedSecret: string;
  readonly untilMs: number;
}

export interface WebhookPaths {
  readonly webhooks: string;
  readonly keys: string;
}

/** Largest number per account. */
export const maxWebhooks = 10;

/** Hours for which the former secret also signs after a rotation, by default and at most. */
export const rotationHours = { fallback: 24, most: 168 } as const;

const secretBytes = 32;
const isWebhook = shapeOf<Webhook>({
  idWebhook: isText,
  idAccount: isCount,
  url: (url) => typeof url === 'string' && URL.canParse(url),
  createdMs: isCount,
  sealedSecret: isText,
  formerSecret: optional(shapeOf<FormerSecret>({ sealedSecret: isText, untilMs: isCount })),
});

/** Opens the webhooks of all accounts. */
export const openWebhooks = ({ webhooks }: Pick<WebhookPaths, 'webhooks'>) =>
  openAccountRecords(webhooks, {
    noun: 'webhook',
    prefix: 'wh',
    idOf: ({ idWebhook }) => idWebhook,
    isValid: isWebhook,
    most: maxWebhooks,
    damaged: { code: 'record_damaged', hint: 'Remove it, and add the webhook again.' },
  });

const sealingOf = ({ keys }: WebhookPaths) => createSealing(keys, 'webhook', 'add the webhook again');

const createSecret = (): string => `whsec_${randomBytes(secretBytes).toString('base64')}`;

/**
 * Adds a webhook, durably; returns it with its signing secret, which cannot be read again. Errors: `conflict` if the
 * account has the maximum, damaged ones included; `locked`.
 */
export async function addWebhook(
  paths: WebhookPaths,
  added: Pick<Webhook, 'idAccount' | 'url' | 'createdMs'>,
): Promise<{ readonly webhook: Webhook; readonly secret: string }> {
  const secret = createSecret();
  const webhook = await openWebhooks(paths).add(added.idAccount, async (idWebhook) => ({
    idWebhook,
    ...added,
    sealedSecret: await sealingOf(paths).seal(secret, idWebhook),
  }));
  return { webhook, secret };
}

/** Removes a webhook, durably, damaged or not; returns whether there was one. Error: `locked`. */
export async function removeWebhook(paths: WebhookPaths, idAccount: number, idWebhook: string): Promise<boolean> {
  const wasThere = await openWebhooks(paths).remove(idAccount, idWebhook);
  if (wasThere) await removeDeliveryLog(paths, { idAccount, idWebhook });
  return wasThere;
}

/**
 * Replaces the secret of a webhook, durably. The former one also signs until `formerUntilMs`, Unix ms; an earlier former
 * one ends. Returns undefined without the webhook.
 */
export async function rotateWebhookSecret(
  paths: WebhookPaths,
  idAccount: number,
  idWebhook: string,
  formerUntilMs: number,
): Promise<{ readonly webhook: Webhook; readonly secret: string } | undefined> {
  const secret = createSecret();
  const sealedSecret = await sealingOf(paths).seal(secret, idWebhook);
  const webhook = await openWebhooks(paths).change(idAccount, idWebhook, (before) => {
    const formerSecret = { sealedSecret: before.sealedSecret, untilMs: formerUntilMs };
    return { ...before, sealedSecret, formerSecret };
  });
  return webhook && { webhook, secret };
}

/** Decrypts the secrets that sign at a time, the current one first. Error: `record_damaged` if their key is another one. */
export async function decryptWebhookSecrets(
  paths: WebhookPaths,
  { idWebhook, sealedSecret, formerSecret }: Webhook,
  nowMs: number,
): Promise<readonly string[]> {
  const former = formerSecret !== undefined && nowMs < formerSecret.untilMs ? [formerSecret.sealedSecret] : [];
  return await Promise.all([sealedSecret, ...former].map((sealed) => sealingOf(paths).open(sealed, idWebhook)));
}

/** The notices that a webhook has received, and the next attempt. */
export interface DeliveredNotices {
  /** Ids of received notices, the newest last. */
  readonly told: readonly string[];
  /** Ids of notices that failed; they are sent after the others. */
  readonly failed: readonly string[];
  /** Failed attempts in a row, and the time of the next, Unix ms. */
  readonly failures: number;
  readonly nextMs: number;
}

/** More than there are notices, past ones included, so that none is sent again. */
const maxDeliveredNotices = 8000;

const nothingDelivered: DeliveredNotices = { told: [], failed: [], failures: 0, nextMs: 0 };

const isToldNotices = shapeOf<DeliveredNotices>({
  told: listOf(isText),
  failed: listOf(isText),
  failures: isCount,
  nextMs: isCount,
});

type DeliveredByWebhook = Readonly<Record<string, DeliveredNotices>>;

export function deliveredTo(told: DeliveredByWebhook, idWebhook: string): DeliveredNotices {
  const known = told[idWebhook];
  return isToldNotices(known) ? known : nothingDelivered;
}

/** Opens the records. They name no app, event or parameter, so an erasure need not change them. */
function openDeliveredNotices(webhooksDir: string): Records<{ readonly webhooks: DeliveredByWebhook }> {
  return createRecords(openStore(webhooksDir), {
    isValid: shapeOf<{ readonly webhooks: DeliveredByWebhook }>({
      webhooks: (webhooks) => typeof webhooks === 'object' && webhooks !== null,
    }),
    damaged: { code: 'record_damaged', hint: 'Remove it: each notice is then sent once more.' },
  });
}

/** Reads the records of an account; empty if damaged, so that each notice is sent once more. */
export async function readDeliveredNotices(webhooksDir: string, idAccount: number): Promise<DeliveredByWebhook> {
  return (await openDeliveredNotices(webhooksDir).getSound(`${idAccount}/notices`))?.webhooks ?? {};
}

export async function writeDeliveredNotices(
  webhooksDir: string,
  idAccount: number,
  delivered: DeliveredByWebhook,
): Promise<void> {
  const webhooks = Object.fromEntries(
    Object.entries(delivered).map(([idWebhook, one]) => [
      idWebhook,
      { ...one, told: one.told.slice(-maxDeliveredNotices) },
    ]),
  );
  await openDeliveredNotices(webhooksDir).put(`${idAccount}/notices`, { webhooks });
}
