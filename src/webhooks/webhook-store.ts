/**
 * Webhooks at rest: addresses that an account has its ended exports, and notices of its apps, told to.
 *
 * Layout: `webhooks/<account>/<id>.json`, one checked record each, written under the lock of its folder; the secret that
 * messages are signed with is sealed under `keys/webhooks.key`. Ids are random, so that none is given out twice.
 * `notices.json` beside them: which notices each was told (told-notices.ts).
 * Invariant: a record that is damaged harms no other webhook of its account.
 * Crash: a record is there whole or not at all.
 */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { AppError, isAppError } from '../runtime/errors.ts';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { createExclusive, ensureFolder, findTextFile, removeFile, syncFolder } from '../runtime/files/durable-file.ts';
import { findNames } from '../runtime/files/folder-names.ts';
import { inFolderTurn } from '../runtime/files/folder-turns.ts';
import { isKnownRecord, markRecord, unmarkRecord } from '../runtime/files/known-records.ts';
import { openText, sealKeyBytes, sealText } from '../runtime/sealed-text.ts';

export interface Webhook {
  /** `wh_` and 16 hex digits. */
  readonly idWebhook: string;
  readonly idAccount: number;
  readonly url: string;
  readonly createdMs: number;
  readonly sealedSecret: string;
}

export interface WebhookPaths {
  readonly webhooks: string;
  readonly keys: string;
}

const idForm = /^wh_[0-9a-f]{16}$/;
const secretBytes = 32;

/** The folder of an account's webhooks. */
export function accountFolder({ webhooks }: WebhookPaths, idAccount: number): string {
  return path.join(webhooks, String(idAccount));
}

const webhookPath = (folder: string, idWebhook: string): string => path.join(folder, `${idWebhook}.json`);

async function ensureKey({ keys }: WebhookPaths): Promise<Buffer> {
  const file = path.join(keys, 'webhooks.key');
  let text = await findTextFile(file);
  if (text === undefined) {
    await ensureFolder(keys);
    await createExclusive(file, `${randomBytes(sealKeyBytes).toString('hex')}\n`);
    text = await findTextFile(file);
  }
  const key = Buffer.from((text ?? '').trim(), 'hex');
  if (key.length === sealKeyBytes) return key;
  throw new AppError('record_damaged', `${file} is not a key`, {
    hint: 'Restore it from a backup, or remove it and add the webhooks anew.',
  });
}

function isWebhook(value: Readonly<Record<string, unknown>>, idWebhook: string): boolean {
  return (
    value['idWebhook'] === idWebhook &&
    Number.isSafeInteger(value['idAccount']) &&
    typeof value['url'] === 'string' &&
    URL.canParse(value['url']) &&
    Number.isSafeInteger(value['createdMs']) &&
    typeof value['sealedSecret'] === 'string'
  );
}

async function readWebhook(folder: string, idWebhook: string): Promise<Webhook | undefined> {
  const file = webhookPath(folder, idWebhook);
  const text = await findTextFile(file);
  if (text === undefined) return undefined;
  const damaged = (cause?: unknown): AppError =>
    new AppError('record_damaged', `${file} is damaged`, { cause, hint: 'Remove it, and add the webhook anew.' });
  let record: Readonly<Record<string, unknown>>;
  try {
    const { version: _, ...members } = parseChecked(text);
    record = members;
  } catch (error) {
    throw damaged(error);
  }
  if (!isWebhook(record, idWebhook)) throw damaged();
  return record as unknown as Webhook;
}

/** The webhooks of an account. */
export interface AccountWebhooks {
  /** Oldest first. */
  readonly known: readonly Webhook[];
  /** Ids of those whose records cannot be read. */
  readonly damaged: readonly string[];
}

/** Runs one change of an account's webhooks at a time, whichever process makes it. Error: `locked`. */
async function change<T>(folder: string, run: () => Promise<T>): Promise<T> {
  return await inFolderTurn(folder, 'a change of webhooks', run);
}

async function listIds(folder: string): Promise<readonly string[]> {
  const names = await findNames(folder);
  return names.filter((name) => name.endsWith('.json')).flatMap((name) => idForm.exec(name.slice(0, -5)) ?? []);
}

/**
 * Adds a webhook, durably, and returns it with the secret that its messages are signed with, which nobody can ask for
 * again. Errors: `conflict` when the account has `most` already, damaged ones included; `locked`.
 */
export async function addWebhook(
  paths: WebhookPaths,
  { idAccount, url }: Pick<Webhook, 'idAccount' | 'url'>,
  { nowMs, most }: { readonly nowMs: number; readonly most: number },
): Promise<{ readonly webhook: Webhook; readonly secret: string }> {
  const folder = accountFolder(paths, idAccount);
  return await change(folder, async () => {
    if ((await listIds(folder)).length >= most)
      throw new AppError('conflict', `account ${idAccount} has ${most} webhooks already`, {
        hint: 'Remove one first.',
      });
    const idWebhook = `wh_${randomBytes(8).toString('hex')}`;
    const secret = `whsec_${randomBytes(secretBytes).toString('base64')}`;
    const sealedSecret = sealText(await ensureKey(paths), secret, idWebhook);
    const webhook: Webhook = { idWebhook, idAccount, url, createdMs: nowMs, sealedSecret };
    await createExclusive(webhookPath(folder, idWebhook), renderChecked({ ...webhook }));
    await markRecord(paths.webhooks, webhookPath(folder, idWebhook));
    return { webhook, secret };
  });
}

/** A webhook of an account; undefined when it has none of that id. Error: `record_damaged`. */
export async function findWebhook(
  paths: WebhookPaths,
  idAccount: number,
  idWebhook: string,
): Promise<Webhook | undefined> {
  return idForm.test(idWebhook) ? await readWebhook(accountFolder(paths, idAccount), idWebhook) : undefined;
}

/** The webhooks of an account. Errors: those of the disk. */
export async function listWebhooks(paths: WebhookPaths, idAccount: number): Promise<AccountWebhooks> {
  const folder = accountFolder(paths, idAccount);
  const known: Webhook[] = [];
  const damaged: string[] = [];
  for (const id of await listIds(folder)) {
    try {
      const webhook = await readWebhook(folder, id);
      if (webhook !== undefined) known.push(webhook);
    } catch (error) {
      if (!isAppError(error, 'record_damaged')) throw error;
      damaged.push(id);
    }
  }
  known.sort((a, b) => a.createdMs - b.createdMs || (a.idWebhook < b.idWebhook ? -1 : 1));
  return { known, damaged };
}

/** Removes a webhook, durably, damaged, missing or not; says whether the account had it. Error: `locked`. */
export async function removeWebhook(paths: WebhookPaths, idAccount: number, idWebhook: string): Promise<boolean> {
  if (!idForm.test(idWebhook)) return false;
  const folder = accountFolder(paths, idAccount);
  const file = webhookPath(folder, idWebhook);
  const isThere = () => isKnownRecord(paths.webhooks, file);
  if (!(await isThere())) return false;
  return await change(folder, async () => {
    if (!(await isThere())) return false;
    await unmarkRecord(paths.webhooks, file, async () => {
      await removeFile(file);
      await syncFolder(folder);
    });
    return true;
  });
}

/** The secret of a webhook. Error: `record_damaged` where its key is another one. */
export async function openWebhookSecret(paths: WebhookPaths, { idWebhook, sealedSecret }: Webhook): Promise<string> {
  const key = await ensureKey(paths);
  try {
    return openText(key, sealedSecret, idWebhook);
  } catch (error) {
    throw new AppError('record_damaged', `the secret of webhook ${idWebhook} cannot be decrypted`, {
      cause: error,
      hint: 'Restore the webhooks and keys/webhooks.key from the same backup, or add the webhook anew.',
    });
  }
}
