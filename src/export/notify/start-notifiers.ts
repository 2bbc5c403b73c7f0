import type { AccessReader } from '../../access/access.ts';
import type { Config } from '../../config.ts';
import type { ReportStore } from '../../reports/store.ts';
import type { Clock } from '../../runtime/clock.ts';
import { AppError } from '../../runtime/errors.ts';
import { createOutgoingRules, type OutgoingRules } from '../../runtime/http/outgoing-rules.ts';
import type { Closers } from '../../runtime/lifecycle.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { WebhookPaths } from '../../webhooks/webhook-store.ts';
import { createLastTries, type LastTries } from '../../webhooks/last-tries.ts';
import { startNoticeNotifier } from './notice-notifier.ts';
import { startNotifier, type Notifier } from './notifier.ts';

interface WebhookOptions extends Pick<Config, 'webhooksAllow'> {
  readonly webhooksDir: string;
  readonly keysDir: string;
  readonly lakeDir: string;
}

interface Dependencies {
  readonly access: AccessReader;
  readonly store: ReportStore;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Where webhooks lie. */
export function webhookPaths({ webhooksDir, keysDir }: Pick<WebhookOptions, 'webhooksDir' | 'keysDir'>): WebhookPaths {
  return { webhooks: webhooksDir, keys: keysDir };
}

/** What may be sent to. Error: `config_invalid`. */
export function outgoingRules({ webhooksAllow }: Pick<WebhookOptions, 'webhooksAllow'>): OutgoingRules {
  const rules = createOutgoingRules(webhooksAllow);
  if (typeof rules !== 'string') return rules;
  throw new AppError('config_invalid', `TRIBUTARY_WEBHOOKS_ALLOW holds '${rules}', which is no network and no name`, {
    hint: 'Name networks such as 10.1.0.0/16 and names such as hooks.example.com.',
  });
}

/** Starts to tell webhooks of ended exports and of notices, until the stage stops. */
export function startNotifiers(
  { access, store, clock, logger }: Dependencies,
  options: WebhookOptions,
  closers: Closers,
): { readonly notifier: Notifier; readonly tries: LastTries } {
  const { lakeDir } = options;
  const tries = createLastTries();
  const shared = { paths: webhookPaths(options), rules: outgoingRules(options), clock, logger, tries };
  const notifier = startNotifier({ ...shared, store });
  closers.add('webhooks', () => notifier.stop());
  const noticeNotifier = startNoticeNotifier({ ...shared, lakeDir, access });
  closers.add('webhooks of notices', () => noticeNotifier.stop());
  return { notifier, tries };
}
