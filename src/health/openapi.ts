import type { OpenApiObject, OpenApiPart } from '../runtime/http/openapi.ts';

function answer(description: string, mediaType: string, schema: OpenApiObject): OpenApiObject {
  return { description, content: { [mediaType]: { schema } } };
}

function describeRoute(summary: string, responses: OpenApiObject): OpenApiObject {
  return { get: { summary, tags: ['Health'], security: [], responses } };
}

function object(properties: Readonly<Record<string, OpenApiObject>>): OpenApiObject {
  return { type: 'object', required: Object.keys(properties), properties };
}

const readiness = { $ref: '#/components/schemas/Readiness' };

/**
 * The part of the API reference on the service itself: its health, which every public port serves, and the reference.
 * None needs authorization.
 */
export function describeHealth(): OpenApiPart {
  return {
    area: 'export',
    paths: {
      '/healthz': describeRoute('Whether the process that serves this area answers.', {
        200: answer('It does.', 'application/json', object({ alive: { type: 'boolean' } })),
      }),
      '/readyz': describeRoute(
        "Whether the whole service works. What is wrong is shown on the operator's own address.",
        {
          200: answer('It does.', 'application/json', readiness),
          503: answer('Something is wrong.', 'application/json', readiness),
        },
      ),
      '/openapi.json': describeRoute('This reference, as a document.', {
        200: answer('OpenAPI 3.1.', 'application/json', { type: 'object' }),
      }),
      '/docs': describeRoute('This reference, as a page for people.', {
        200: answer('HTML.', 'text/html', { type: 'string' }),
      }),
    },
    examples: {
      '/healthz': { answer: { alive: true } },
      '/readyz': { answer: { ready: true } },
      '/openapi.json': { answer: { openapi: '3.1.0' } },
      '/docs': { answer: '<!doctype html>' },
    },
    components: {
      schemas: {
        Readiness: object({ ready: { type: 'boolean' } }),
      },
      securitySchemes: {},
    },
  };
}
