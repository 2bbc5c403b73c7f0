import type { ServerResponse } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import type { AccessReader, App } from '../access/access.ts';
import type { LiveHub } from '../live/live-hub.ts';
import type { FoundRefusals } from '../refusals/refusal-files.ts';
import { createTokenBuckets } from '../runtime/async/rate-limits.ts';
import { writeTooMany, type ImportResponses } from './responses.ts';
import { findApp, tokenRefusal } from './find-app.ts';
import type { Fail } from './import-handler.ts';
import type { Refusal } from './refusal.ts';
import { findMisspelledParameter } from './validation-errors.ts';
import type { ImportServer } from './server.ts';

export interface ClientDiagnosticsView {
  readonly readRefusals: (idApp: number, most: number) => Promise<FoundRefusals>;
  readonly hub: LiveHub;
}

export interface DiagnosticsDependencies {
  readonly access: AccessReader;
  readonly importResponses: ImportResponses;
  readonly fail: Fail;
  readonly view: ClientDiagnosticsView;
}

export const refusalLimits = { fallback: 100, most: 1000 } as const;
/** Limits the queries of an app, of an account, and of all, to one process, since each reads files. */
const questions = { size: 20, perSecond: 5 } as const;
const accountQuestions = { size: 20, perSecond: 10 } as const;
const allQuestions = { size: 40, perSecond: 20 } as const;

function parseRefusalLimit(limit: unknown): number | undefined {
  if (limit === undefined) return refusalLimits.fallback;
  const value = typeof limit === 'string' && /^[1-9]\d{0,3}$/.test(limit) ? Number(limit) : Number.NaN;
  return value <= refusalLimits.most ? value : undefined;
}

const queryNames = ['idApp', 'limit'];
const badLimit: Refusal = { reason: 'rules', detail: `the parameter limit must be from 1 to ${refusalLimits.most}` };
const notServedDetails = {
  away: 'live events are unavailable: the broker is unreachable',
  denied: 'live events are unavailable: the broker denies their subjects',
  stopping: 'the service is stopping',
} as const;

export function addDiagnosticsRoutes(
  server: ImportServer,
  { access, importResponses, fail, view }: DiagnosticsDependencies,
): void {
  const ofApp = createTokenBuckets(questions.size, questions.perSecond);
  const ofAccount = createTokenBuckets(accountQuestions.size, accountQuestions.perSecond);
  const ofAll = createTokenBuckets(allQuestions.size, allQuestions.perSecond);
  const mayAsk = ({ idApp, idAccount }: App): boolean => ofApp.take(idApp) && ofAccount.take(idAccount) && ofAll.take();

  function addRoute(
    path: string,
    respond: (app: App, request: FastifyRequest, response: ServerResponse) => Promise<void>,
  ): void {
    server.get(path, (request, reply) => {
      const response = reply.hijack().raw;
      const query = membersOf(request.query);
      const { idApp } = query;
      const app = findApp(access, idApp, request.raw);
      if ('reason' in app) return importResponses.refuse(response, app, { idApp });
      const misspelt = findMisspelledParameter(Object.keys(query), queryNames);
      if (misspelt !== undefined) return importResponses.refuse(response, misspelt, { idApp });
      if (!mayAsk(app)) return writeTooMany(response, 'too many concurrent requests');
      respond(app, request, response).catch((error: unknown) => fail(error, { request: request.raw, response, idApp }));
    });
  }

  addRoute('/v1/refusals', async ({ idApp }, { query }, response) => {
    const most = parseRefusalLimit(membersOf(query)['limit']);
    if (most === undefined) return importResponses.refuse(response, badLimit, { idApp: String(idApp) });
    importResponses.send(response, JSON.stringify(await view.readRefusals(idApp, most)));
  });

  addRoute('/v1/live', async (app, request, response) => {
    const { idApp, idAccount } = app;
    const isAllowed = (): boolean => !('reason' in findApp(access, String(idApp), request.raw));
    const notServed = await view.hub.serve(response, { idApp, idAccount, isAllowed });
    if (notServed === undefined) return;
    if (notServed === 'full') return writeTooMany(response, 'too many live listeners');
    const refusal: Refusal =
      notServed === 'forbidden' ? tokenRefusal : { reason: 'unavailable', detail: notServedDetails[notServed] };
    importResponses.refuse(response, refusal, { idApp: String(idApp) });
  });

  const forget = access.onChange(() => view.hub.check());
  server.addHook('onClose', () => forget());
}
