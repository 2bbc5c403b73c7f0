/** The three kinds of imported event, as the `kind` column has them. */
export const eventKinds = ['registration', 'login', 'custom_event'] as const;
export type EventKind = (typeof eventKinds)[number];

/** Path names of the import methods (service.md 4.1, 4.2), single and batch, and the kind each imports. */
export const importMethods = {
  registration: { kind: 'registration', batch: false },
  login: { kind: 'login', batch: false },
  customEvent: { kind: 'custom_event', batch: false },
  registrationBatch: { kind: 'registration', batch: true },
  loginBatch: { kind: 'login', batch: true },
  customEventBatch: { kind: 'custom_event', batch: true },
} as const satisfies Record<string, { kind: EventKind; batch: boolean }>;
export type ImportMethod = keyof typeof importMethods;

/** The platforms an app can be on; they decide who an event is about, and which defaults apply. */
export const platforms = ['mobile-a', 'mobile-b', 'web', 'mini-app', 'game'] as const;
export type Platform = (typeof platforms)[number];
