"""The JSON examples of the A2A 1.0 specification, by section. Retyped; what its prose breaks in JSON is set right.

Left out: examples that lack a required field in an answer (6.2, 6.3) or are no 1.0 (4.6.1 says 0.3).
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["CARD", "ENVELOPES", "ERRORS", "LACKING", "RESULTS", "SENDS"]

_UUID = "6dbc13b5-bd57-4c2b-b503-24e381b6c8d6"
_CONTEXT = "c295ea44-7543-4f78-b524-7a38915ad6e4"
_GEO = "https://example.com/extensions/geolocation/v1"
_CITATIONS = "https://standards.org/extensions/citations/v1"


def _user(text: str, id_: str = "msg-uuid", **more: Any) -> dict[str, Any]:
    return {"role": "ROLE_USER", "parts": [{"text": text}], "messageId": id_, **more}


SENDS: Final[dict[str, dict[str, Any]]] = {
    "6.1": {"message": _user("What is the weather today?")},
    "6.2": {"message": _user("Write a detailed report on climate change")},
    "6.3": {"message": _user("Book me a flight", "msg-1")},
    "6.3 follow-up": {"message": _user("From San Francisco to New York", "msg-2", taskId="task-uuid")},
    "6.6": {
        "message": _user(
            "Generate the Q1 sales report. This usually takes a while. Notify me when it's ready.",
            _UUID,
        ),
        "configuration": {
            "taskPushNotificationConfig": {
                "url": "https://client.example.com/webhook/a2a-notifications",
                "authentication": {"scheme": "Bearer", "credentials": "secure-client-token-for-task-aaa"},
            }
        },
    },
    "6.7": {
        "message": {
            "role": "ROLE_USER",
            "parts": [
                {"text": "Analyze this image and highlight any faces."},
                {"raw": "iVBORw0KGgoAAAANSUhEUgAAAAUA", "filename": "input_image.png", "mediaType": "image/png"},
            ],
            "messageId": _UUID,
        }
    },
    "6.8": {
        "message": {
            "role": "ROLE_USER",
            "parts": [
                {
                    "text": "Show me a list of my open IT tickets",
                    "metadata": {
                        "mediaType": "application/json",
                        "schema": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "ticketNumber": {"type": "string"},
                                    "description": {"type": "string"},
                                },
                            },
                        },
                    },
                }
            ],
            "messageId": "85b26db5-ffbb-4278-a5da-a7b09dea1b47",
        }
    },
    "11.4": {
        "message": _user("Hello", "uuid"),
        "configuration": {"acceptedOutputModes": ["text/plain"]},
    },
    "4.6.2": {
        "message": _user(
            "Find restaurants near me",
            extensions=[_GEO],
            metadata={
                _GEO: {
                    "latitude": 37.7749,
                    "longitude": -122.4194,
                    "accuracy": 10.0,
                    "timestamp": "2025-10-21T14:30:00Z",
                }
            },
        )
    },
}
"""Params of SendMessage."""

LACKING: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "4.6.1": (
        {
            "message": {
                "role": "ROLE_USER",
                "parts": [{"text": "Find restaurants near me"}],
                "extensions": [_GEO],
                "metadata": {_GEO: {"latitude": 37.7749, "longitude": -122.4194}},
            }
        },
        "message.messageId",
    ),
    "11.2": (
        {"message": {"role": "ROLE_USER", "parts": [{"text": "Find restaurants near me"}]}},
        "message.messageId",
    ),
}
"""Params that the specification shows without a required field, and that field."""

ENVELOPES: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "9.4.3": (
        {"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": {"id": "task-uuid", "historyLength": 10}},
        {"id": "task-uuid", "history_length": 10},
    ),
    "9.4.4": (
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "ListTasks",
            "params": {
                "contextId": "context-uuid",
                "status": "TASK_STATE_WORKING",
                "pageSize": 50,
                "pageToken": "cursor-token",
            },
        },
        {"context_id": "context-uuid", "status": "TASK_STATE_WORKING", "page_size": 50, "page_token": "cursor-token"},
    ),
    "9.4.5": (
        {"jsonrpc": "2.0", "id": 4, "method": "CancelTask", "params": {"id": "task-uuid"}},
        {"id": "task-uuid"},
    ),
    "9.4.6": (
        {"jsonrpc": "2.0", "id": 5, "method": "SubscribeToTask", "params": {"id": "task-uuid"}},
        {"id": "task-uuid"},
    ),
    "9.4.8": ({"jsonrpc": "2.0", "id": 6, "method": "GetExtendedAgentCard"}, {}),
}
"""JSON-RPC requests, and the fields that they set."""

_LISTED = {
    "id": "3f36680c-7f37-4a5f-945e-d78981fafd36",
    "contextId": _CONTEXT,
    "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2024-03-15T10:15:00Z"},
}

RESULTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "6.1": (
        "SendMessageResponse",
        {
            "task": {
                "id": "task-uuid",
                "contextId": "context-uuid",
                "status": {"state": "TASK_STATE_COMPLETED"},
                "artifacts": [
                    {
                        "artifactId": "artifact-uuid",
                        "name": "Weather Report",
                        "parts": [{"text": "Today will be sunny with a high of 75°F"}],
                    }
                ],
            }
        },
    ),
    "6.2 task": (
        "StreamResponse",
        {"task": {"id": "task-uuid", "contextId": "context-uuid", "status": {"state": "TASK_STATE_WORKING"}}},
    ),
    "6.2 end": (
        "StreamResponse",
        {
            "statusUpdate": {
                "taskId": "task-uuid",
                "contextId": "context-uuid",
                "status": {"state": "TASK_STATE_COMPLETED"},
            }
        },
    ),
    "6.5 context": (
        "ListTasksResponse",
        {"tasks": [_LISTED], "totalSize": 5, "pageSize": 10, "nextPageToken": ""},
    ),
    "6.5 working": (
        "ListTasksResponse",
        {
            "tasks": [
                {
                    "id": "789abc-def0-1234-5678-9abcdef01234",
                    "contextId": "another-context-id",
                    "status": {
                        "state": "TASK_STATE_WORKING",
                        "message": {
                            "role": "ROLE_AGENT",
                            "parts": [{"text": "Processing your document analysis..."}],
                            "messageId": "msg-status-update",
                        },
                        "timestamp": "2024-03-15T10:20:00Z",
                    },
                }
            ],
            "totalSize": 1,
            "pageSize": 20,
            "nextPageToken": "",
        },
    ),
    "6.5 page": (
        "ListTasksResponse",
        {"tasks": [_LISTED], "totalSize": 15, "pageSize": 10, "nextPageToken": "base64-encoded-next-cursor-token"},
    ),
    "6.6 submitted": (
        "SendMessageResponse",
        {
            "task": {
                "id": "43667960-d455-4453-b0cf-1bae4955270d",
                "contextId": _CONTEXT,
                "status": {"state": "TASK_STATE_SUBMITTED", "timestamp": "2024-03-15T11:00:00Z"},
            }
        },
    ),
    "6.6 notification": (
        "StreamResponse",
        {
            "statusUpdate": {
                "taskId": "43667960-d455-4453-b0cf-1bae4955270d",
                "contextId": _CONTEXT,
                "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2024-03-15T18:30:00Z"},
            }
        },
    ),
    "6.7": (
        "SendMessageResponse",
        {
            "task": {
                "id": "43667960-d455-4453-b0cf-1bae4955270d",
                "contextId": _CONTEXT,
                "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2024-03-15T12:05:00Z"},
                "artifacts": [
                    {
                        "artifactId": "9b6934dd-37e3-4eb1-8766-962efaab63a1",
                        "name": "processed_image_with_faces.png",
                        "parts": [
                            {
                                "url": "https://storage.example.com/processed/task-bbb/output.png?token=xyz",
                                "filename": "output.png",
                                "mediaType": "image/png",
                            }
                        ],
                    }
                ],
            }
        },
    ),
    "6.8": (
        "SendMessageResponse",
        {
            "task": {
                "id": "d8c6243f-5f7a-4f6f-821d-957ce51e856c",
                "contextId": _CONTEXT,
                "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2025-04-17T17:47:09.680794Z"},
                "artifacts": [
                    {
                        "artifactId": "c5e0382f-b57f-4da7-87d8-b85171fad17c",
                        "parts": [{"text": '[{"ticketNumber":"REQ12312","description":"request for VPN access"}]'}],
                    }
                ],
            }
        },
    ),
    "4.6.2 artifact": (
        "Artifact",
        {
            "artifactId": "research-summary-001",
            "name": "Climate Change Summary",
            "parts": [{"text": "Global temperatures have risen by 1.1°C since pre-industrial times."}],
            "extensions": [_CITATIONS],
            "metadata": {
                _CITATIONS: {
                    "sources": [
                        {
                            "title": "Global Temperature Anomalies - 2023 Report",
                            "authors": ["Smith, J.", "Johnson, M."],
                            "url": "https://climate.gov/reports/2023-temperature",
                            "accessDate": "2025-10-21",
                            "relevantText": "Global temperatures have risen by 1.1°C",
                        }
                    ]
                }
            },
        },
    ),
    "5.8": (
        "AgentInterface",
        {
            "url": "wss://agent.example.com/a2a/websocket",
            "protocolBinding": "https://example.com/bindings/websocket/v1",
            "protocolVersion": "1.0",
        },
    ),
    "A.2.1 text": ("Part", {"text": "Hello, world!"}),
    "A.2.1 file": ("Part", {"raw": "iVBORw0KGgo=", "filename": "diagram.png", "mediaType": "image/png"}),
}
"""What an agent answers: the message that it is, and its JSON."""

ERRORS: Final[dict[str, dict[str, Any]]] = {
    "9.5 validation": {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {
            "code": -32602,
            "message": "Invalid parameters",
            "data": [
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [{"field": "message.parts", "description": "At least one part is required"}],
                }
            ],
        },
    },
    "9.5 task": {
        "jsonrpc": "2.0",
        "id": 2,
        "error": {
            "code": -32001,
            "message": "Task not found",
            "data": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "TASK_NOT_FOUND",
                    "domain": "a2a-protocol.org",
                    "metadata": {"taskId": "nonexistent-task-id", "timestamp": "2025-11-09T10:30:00.000Z"},
                }
            ],
        },
    },
    "11.6": {
        "error": {
            "code": 404,
            "status": "NOT_FOUND",
            "message": "The specified task ID does not exist or is not accessible",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "TASK_NOT_FOUND",
                    "domain": "a2a-protocol.org",
                    "metadata": {"taskId": "task-123", "timestamp": "2025-11-09T10:30:00.000Z"},
                }
            ],
        }
    },
}

CARD: Final[dict[str, Any]] = {
    "name": "GeoSpatial Route Planner Agent",
    "description": "Provides advanced route planning, traffic analysis, and custom map generation services.",
    "supportedInterfaces": [
        {"url": "https://georoute-agent.example.com/a2a/v1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "https://georoute-agent.example.com/a2a/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {
            "url": "https://georoute-agent.example.com/a2a/json",
            "protocolBinding": "HTTP+JSON",
            "protocolVersion": "1.0",
        },
    ],
    "provider": {"organization": "Example Geo Services Inc.", "url": "https://www.examplegeoservices.com"},
    "iconUrl": "https://georoute-agent.example.com/icon.png",
    "version": "1.2.0",
    "documentationUrl": "https://docs.examplegeoservices.com/georoute-agent/api",
    "capabilities": {"streaming": True, "pushNotifications": True, "extendedAgentCard": True},
    "securitySchemes": {
        "google": {
            "openIdConnectSecurityScheme": {
                "openIdConnectUrl": "https://accounts.google.com/.well-known/openid-configuration"
            }
        }
    },
    "securityRequirements": [{"schemes": {"google": {"list": ["openid", "profile", "email"]}}}],
    "defaultInputModes": ["application/json", "text/plain"],
    "defaultOutputModes": ["application/json", "image/png"],
    "skills": [
        {
            "id": "route-optimizer-traffic",
            "name": "Traffic-Aware Route Optimizer",
            "description": "Calculates the optimal driving route between two or more locations.",
            "tags": ["maps", "routing", "navigation", "directions", "traffic"],
            "examples": [
                "Plan a route to 'San Francisco International Airport' avoiding tolls.",
                '{"origin": {"lat": 37.422, "lng": -122.084}, "preferences": ["avoid_ferries"]}',
            ],
            "inputModes": ["application/json", "text/plain"],
            "outputModes": ["application/json", "application/vnd.geo+json", "text/html"],
        },
        {
            "id": "custom-map-generator",
            "name": "Personalized Map Generator",
            "description": "Creates custom map images or interactive map views. Can overlay data layers.",
            "tags": ["maps", "customization", "visualization", "cartography"],
            "examples": ["Generate a map of my upcoming road trip with all planned stops highlighted."],
            "inputModes": ["application/json"],
            "outputModes": ["image/png", "image/jpeg", "application/json", "text/html"],
        },
    ],
    "signatures": [
        {
            "protected": "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpPU0UiLCJraWQiOiJrZXktMSJ9",
            "signature": "QFdkNLNszlGj3z3u0YQGt_T9LixY3qtdQpZmsTdDHDe3fXV9y9-B3m2-XgCpzuhiLt8E0tV6HXoZKHv4GtHgKQ",
        }
    ],
}
"""The sample card of 8.5, some of its texts shortened."""
