import { setPassword } from '../access/passwords.ts';
import { openSessionEnds, openSessionKey } from '../access/session-key.ts';
import { createRememberedBrowsers, createSessions, maxSessionSeconds } from '../access/sessions.ts';
import type { AccessReader } from '../access/access.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import { dataPaths } from '../config.ts';
import { addPageRoutes, openPageFiles } from '../console/page-routes.ts';
import { addSessionRoutes } from '../console/session-routes.ts';
import { createSignInGuard } from '../console/sign-in-guard.ts';
import type { ApiServer } from '../export/api/server.ts';
import { describeExportForm } from '../export/api/export-form-metadata.ts';
import { defaultTimezone } from '../export/api/parse-request.ts';
import { findBuild } from '../runtime/files/package-files.ts';
import type { CompositionContext } from './context.ts';

export async function openConsole(
  compositionContext: CompositionContext,
  access: AccessReader,
  audit: Pick<AuditLog, 'record'>,
) {
  const { config, logger, clock, closers } = compositionContext;
  const { publicApiUrl: publicUrl, dataDir, quotaIp } = config;
  // Operators behind a proxy turn the quota of addresses off.
  const hasClientAddresses = quotaIp.length > 0;
  const { version } = findBuild();
  const key = await openSessionKey(dataPaths(dataDir).keys, logger);
  closers.add('session key', () => key.close());
  const nowSeconds = (): number => Math.floor(clock.nowMs() / 1000);
  const ends = await openSessionEnds(dataPaths(dataDir).keys, logger, {
    nowSeconds,
    longestSeconds: maxSessionSeconds,
  });
  closers.add('session ends', () => ends.close());
  const browsers = createRememberedBrowsers(key);
  const guard = createSignInGuard(compositionContext, hasClientAddresses);
  const store = async (idUser: string, password: string) =>
    (await setPassword(dataPaths(dataDir), Number(idUser), password)).passwordHash;
  const isReady = (): boolean => key.isReadable();
  const sessions = createSessions({ key, access, clock, ends }, publicUrl?.startsWith('https:') === true);
  return {
    sessions,
    problems: () => key.problems(),
    addRoutes: (server: ApiServer): void => {
      const options = { publicUrl, version, timezone: defaultTimezone, hasClientAddresses };
      addSessionRoutes(server, { access, sessions, browsers, guard, audit, setPassword: store, isReady }, options);
      const importAddress = { importUrl: config.publicS2sUrl, importPort: config.s2sPort };
      addPageRoutes(server, openPageFiles(), () => ({ ...describeExportForm(), ...importAddress }));
    },
  };
}
