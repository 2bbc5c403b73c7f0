import { createHash } from 'node:crypto';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { basic, send, targetOf, type Answer, type AnswerData, type Call, type Credentials } from './export-area.ts';
import type { TestService } from './service.ts';
import { waitFor } from './wait.ts';
import { findText } from '../../src/runtime/store/object-store.ts';
import { openStore } from '../../src/runtime/store/open-store.ts';

const answerMs = 120_000;
/** Attempts after which a request ends in its documented error. */
const mostAttempts = 8;
/** Interruptions after which it does. */
const mostInterruptions = 32;

/** A client of a service's export area. It retries while the service is unavailable, except for `create`. */
export interface ExportClient {
  /** Creates a request; undefined without a response: it may exist or not. Throws if it is rejected. */
  create(query: string): Promise<string | undefined>;
  /** Returns the ids of all requests of the user, newest first. */
  list(): Promise<string[]>;
  /** Returns the request from the report area; undefined if it does not exist. */
  find(id: string): Promise<AnswerData | undefined>;
  waitForEnd(id: string): Promise<AnswerData>;
  /** Cancels a request; the result shows in the request's end. */
  cancel(id: string): Promise<void>;
  /** Downloads the rows of a finished request with the header; checks the bytes against the SHA-256 given. */
  download(data: AnswerData): Promise<string[]>;
}

/**
 * Returns the query of an export of custom events, from the first day until today (UTC). `more` adds or replaces
 * parameters.
 */
export function exportQuery(selectors: string, more: Readonly<Record<string, string>> = {}): string {
  return new URLSearchParams({
    event: 'customEvents',
    selectors,
    dateFrom: '1970-01-01',
    dateTo: new Date().toISOString().slice(0, 10),
    timezone: 'UTC',
    ...more,
  }).toString();
}

/** Creates the client of a user. */
export function createExportClient(service: Pick<TestService, 'api'>, user: Credentials): ExportClient {
  const ask = (target: string, call: Call = {}): Promise<Answer | undefined> => {
    const headers = target.startsWith('/files/') ? {} : { authorization: basic(user) };
    return send(Number(new URL(service.api).port), target, { ...call, headers }).catch(() => undefined);
  };
  const answered = async (what: string, target: string): Promise<Answer> => {
    let answer: Answer | undefined;
    await waitFor(what, async () => (answer = await ask(target)) !== undefined, answerMs);
    if (answer === undefined) throw new Error('unreachable');
    return answer;
  };
  const client: ExportClient = {
    async create(query) {
      const answer = await ask('/api/raw/v1/export/create.json', { method: 'POST', body: query });
      if (answer !== undefined && answer.status !== 200)
        throw new Error(`create answered ${answer.status}: ${answer.body.toString()}`);
      return answer?.json?.data?.idRawExport;
    },
    async list() {
      let json: Answer['json'];
      await waitFor(
        'the requests are listed',
        async () => {
          const answer = await answered('the list is answered', '/api/report/v1/file/list.json');
          json = answer.json;
          // After a start the service first reads the requests of earlier processes.
          return answer.status === 200;
        },
        answerMs,
      );
      return (json?.data?.reports ?? []).map((report) => String(report['idReportFile']));
    },
    async find(id) {
      const answer = await answered(`export ${id} is answered`, `/api/report/v1/file/get.json?idReportFile=${id}`);
      if (answer.status !== 200 && answer.status !== 404)
        throw new Error(`export ${id} answered ${answer.status}: ${answer.body.toString()}`);
      return answer.status === 404 ? undefined : (answer.json?.data ?? {});
    },
    async waitForEnd(id) {
      let data: AnswerData | undefined;
      await waitFor(
        `export ${id} ends`,
        async () => (data = await client.find(id))?.status !== 'In progress',
        answerMs,
      );
      if (data === undefined) throw new Error(`export ${id} does not exist`);
      return data;
    },
    async cancel(id) {
      await ask('/api/raw/v1/export/cancel.json', { method: 'POST', body: `idRawExport=${id}` });
    },
    async download(data) {
      const rows: string[] = [];
      for (const file of data.files ?? []) {
        const { status, body } = await answered('a file is downloaded', targetOf(file.link));
        if (status !== 200 || createHash('sha256').update(body).digest('hex') !== file.sha256)
          throw new Error(`${file.link} returned ${status}, or bytes other than documented`);
        const text = (file.link.includes('.csv.gz?') ? gunzipSync(body) : body).toString('utf8');
        for (const row of text.trimEnd().split('\n')) rows.push(row);
      }
      return rows;
    },
  };
  return client;
}

/** Counts of requests with a result, and of those that ended in the documented error. */
export interface ExportAccount {
  readonly finished: number;
  readonly failed: number;
  readonly canceled: number;
}

/**
 * Waits for the end of every request, and checks it. Those acknowledged with 200 exist. Each has one result with the
 * right rows in any order, or an error after the maximum of attempts or interruptions, or was cancelled on request.
 */
export async function accountForExports(
  service: TestService,
  client: ExportClient,
  acknowledged: readonly string[],
  rightRows: readonly string[],
  mayBeCanceled: ReadonlySet<string> = new Set(),
): Promise<ExportAccount> {
  const expected = rightRows.toSorted().join('\n');
  const all = await client.list();
  const lost = acknowledged.filter((id) => !all.includes(id));
  if (lost.length > 0) throw new Error(`export requests are lost: ${lost.join(', ')}`);
  const account = { finished: 0, failed: 0, canceled: 0 };
  for (const id of all) {
    const data = await client.waitForEnd(id);
    if (data.status === 'Success!') {
      const rows = await client.download(data);
      if (rows.toSorted().join('\n') !== expected)
        throw new Error(`export ${id} has ${rows.length} rows that are not the ${rightRows.length} expected`);
      account.finished += 1;
    } else {
      const {
        state,
        attempts,
        interruptions = 0,
      } = JSON.parse((await findText(openStore(path.join(service.dataDir, 'reports')), `${id}/job.json`)) ?? '') as {
        state: string;
        attempts: number;
        interruptions?: number;
      };
      if (state === 'canceled' && mayBeCanceled.has(id)) {
        account.canceled += 1;
        continue;
      }
      if (state !== 'failed' || (attempts !== mostAttempts && interruptions !== mostInterruptions))
        throw new Error(
          `export ${id} ended as ${state} after ${attempts} attempts and ${interruptions} interruptions: ${data.errorMessage ?? data.status}`,
        );
      account.failed += 1;
    }
  }
  return account;
}
