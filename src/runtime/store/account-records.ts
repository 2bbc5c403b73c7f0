import { randomBytes } from 'node:crypto';
import { decryptText, encryptText } from '../encrypted-text.ts';
import { AppError } from '../errors.ts';
import { ensureKey, openKeys } from './keys.ts';
import { openMarkedRecords } from './marked-records.ts';
import type { RecordKind } from './records.ts';

/** Records of one kind of which each account has a few: `<account>/<id>.json`. */
interface AccountRecord {
  readonly idAccount: number;
  readonly createdMs: number;
}

interface AccountRecordKind<T> extends Pick<RecordKind<T>, 'isValid' | 'damaged'> {
  /** Of a record, such as `destination`. */
  readonly noun: string;
  /** Start of the ids, such as `de`. 16 random hex digits follow, so that an id never repeats. */
  readonly prefix: string;
  readonly idOf: (record: T) => string;
  /** Largest number per account, damaged ones included. */
  readonly most: number;
}

export interface AccountList<T> {
  readonly known: readonly T[];
  /** Ids of damaged records. */
  readonly damaged: readonly string[];
}

/** Opens the records of a folder. Errors: `record_damaged`, those of the store. */
export function openAccountRecords<T extends AccountRecord>(folder: string, kind: AccountRecordKind<T>) {
  const { isValid, damaged, noun, prefix, idOf, most } = kind;
  const records = openMarkedRecords<T>(folder, {
    isValid,
    damaged,
    idOf: (record) => `${record.idAccount}/${idOf(record)}`,
    idForm: new RegExp(`^\\d+/${prefix}_[0-9a-f]{16}$`),
  });
  return {
    /** Adds a record with a new id, durably, unless there is the same. Errors: `conflict` above the limit; `locked`. */
    async add(
      idAccount: number,
      create: (id: string) => T | Promise<T>,
      isSame: (record: T) => boolean = () => false,
    ): Promise<T> {
      return await records.store.hold(String(idAccount), async () => {
        const { known, damaged: others } = await records.list(`${idAccount}/`);
        const same = known.find(isSame);
        if (same !== undefined) return same;
        if (known.length + others.length >= most)
          throw new AppError('conflict', `account ${idAccount} has ${most} ${noun}s already`, {
            hint: 'Remove one first.',
          });
        const id = `${prefix}_${randomBytes(8).toString('hex')}`;
        const record = await create(id);
        await records.create(`${idAccount}/${id}`, record);
        return record;
      });
    },
    find: (idAccount: number, id: string): Promise<T | undefined> => records.get(`${idAccount}/${id}`),
    /** Lists the records of an account, oldest first, and the ids of damaged ones. */
    async list(idAccount: number): Promise<AccountList<T>> {
      const { known, damaged: others } = await records.list(`${idAccount}/`);
      return {
        known: known.toSorted((a, b) => a.createdMs - b.createdMs || (idOf(a) < idOf(b) ? -1 : 1)),
        damaged: others.map((id) => id.slice(id.indexOf('/') + 1)),
      };
    },
    /** Changes a record, durably; undefined if there is none. Error: `locked`. */
    change: (idAccount: number, id: string, to: (record: T) => T): Promise<T | undefined> =>
      records.change(`${idAccount}/${id}`, (record) => record && to(record)),
    /** Removes a record, durably, damaged or not; returns whether there was one. Error: `locked`. */
    remove: (idAccount: number, id: string): Promise<boolean> => records.remove(`${idAccount}/${id}`),
    /** Lists the ids of all accounts, each with its account before a slash, in no order. */
    ids: (): Promise<readonly string[]> => records.ids(),
  };
}

/** Encrypts secrets of records under `<noun>s.key`, each bound to the id of its record. `orElse`: another remedy. */
export function createSealing(keysFolder: string, noun: string, orElse: string) {
  const keys = openKeys(keysFolder, {
    code: 'record_damaged',
    what: 'a key',
    hint: `Restore it from a backup, or remove it and add the ${noun}s again.`,
  });
  const getKey = (): Promise<Buffer> => ensureKey(keys, `${noun}s`);
  return {
    seal: async (secret: string, id: string): Promise<string> => encryptText(await getKey(), secret, id),
    /** Error: `record_damaged` if the key is another one. */
    async open(sealed: string, id: string): Promise<string> {
      const key = await getKey();
      try {
        return decryptText(key, sealed, id);
      } catch (error) {
        throw new AppError('record_damaged', `the secret of ${noun} ${id} cannot be decrypted`, {
          cause: error,
          hint: `Restore the ${noun}s and keys/${noun}s.key from the same backup, or ${orElse}.`,
        });
      }
    },
  };
}
